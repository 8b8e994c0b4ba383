job "a" {
  dynamic "constraint" {
    for_each = ["a"]
    content {
      attribute = "label.zone"
    }
  }
  task "a" {
    command = "true"
  }
}
