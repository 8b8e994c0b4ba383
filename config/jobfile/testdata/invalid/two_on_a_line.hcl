job "a" {
  count = 2 priority = 60
  task "a" {
    command = "true"
  }
}
