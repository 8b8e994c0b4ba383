job "train-7b" {
  nodes = 2
  task "train" {
    command = "true"
  }
}
