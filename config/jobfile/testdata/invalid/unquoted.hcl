job "a" {
  task "a" {
    command = echo
  }
}
