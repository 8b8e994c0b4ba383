job "train" {
  task "train" {
    command = "nvidia-smi"
  }
}
