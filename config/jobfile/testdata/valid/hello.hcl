job "hello" {
  task "hello" {
    command = "nvidia-smi"
    resources {
      gpus = 1
    }
  }
}
