job "a" {
  task "a" {
    command = "true
  }
}
