# 6 mistakes
job "a" {
  dynamic "constraint" {
    for_each = ["a", "b"]
    content {
      atribute  = "label.${constraint.value}"
      attribute = "label.zone"
    }
  }
  dynamic "constraint" {
    for_each = 3
    content {
      attribute = "label.zone"
    }
  }
  dynamic "affinity" {
    for_each  = ["a"]
    attribute = "label.zone"
    content {
    }
  }
  dynamic "spread" {
    content {
    }
  }
  dynamic {
  }
  dynamic "taint" {
    for_each = ["a", "b"]
    content {
    }
  }
  task "a" {
    command = "true"
  }
}
