job "a" {
  task "a" {
    script  = "true"
    command = "true"
  }
}
