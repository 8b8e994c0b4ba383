job "a" {
  task "a" {
    command = "true"
    resource {
      gpus = 1
    }
  }
}
