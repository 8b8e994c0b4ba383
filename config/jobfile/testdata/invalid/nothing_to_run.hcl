job "a" {
  task "a" {
    resources {
      gpus = 1
    }
  }
}
