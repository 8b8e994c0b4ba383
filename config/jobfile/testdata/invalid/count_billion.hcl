job "a" {
  count = 1000000000
  task "a" {
    command = "true"
  }
}
