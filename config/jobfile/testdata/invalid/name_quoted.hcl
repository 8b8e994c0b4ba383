job "a" {
  "queue" = "default"
  task "a" {
    command = "true"
  }
}
