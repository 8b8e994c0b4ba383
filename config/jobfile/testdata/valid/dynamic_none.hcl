job "a" {
  dynamic "retry" {
    for_each = []
    content {
      attempts = 3
    }
  }
  dynamic "task" {
    for_each = { main = "true" }
    labels   = [task.key]
    content {
      command = task.value
    }
  }
}
