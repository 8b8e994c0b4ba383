job "again" {
  retry {
    attempts = 3
  }
  task "main" {
    command = "false"
  }
}
