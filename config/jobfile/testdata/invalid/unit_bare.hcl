job "a" {
  time_limit = 4h
  task "a" {
    command = "true"
  }
}
