job "a" {
  time_limit = 3600
  task "a" {
    command = "true"
  }
}
