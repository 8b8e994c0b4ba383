job "a" {
  count = 0
  task "a" {
    command = "true"
  }
}
