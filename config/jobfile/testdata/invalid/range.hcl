job "a" {
  task "a" {
    command = "true"
    resources {
      gpus = 100
    }
  }
}
