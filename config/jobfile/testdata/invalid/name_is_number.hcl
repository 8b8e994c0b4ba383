job "1042" {
  task "a" {
    command = "true"
  }
}
