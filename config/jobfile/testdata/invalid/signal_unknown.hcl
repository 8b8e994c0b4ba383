job "a" {
  task "a" {
    command     = "true"
    kill_signal = "SIGTREM"
  }
}
