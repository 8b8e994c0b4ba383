job "a" {
  count = 2
  task "a" {
    command = "torchrun"
    args    = ["--nnodes=2", "train.py"]
  }
}
