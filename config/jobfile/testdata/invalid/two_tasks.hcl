job "a" {
  task "a" {
    command = "true"
  }
  task "b" {
    command = "true"
  }
}
