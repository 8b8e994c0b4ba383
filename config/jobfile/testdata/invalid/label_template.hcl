job "${var.name}" {
  task "a" {
    command = "true"
  }
}
