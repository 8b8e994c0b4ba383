job "a" {
  priorty = 3
  task "a" {
    command = "true"
  }
}
