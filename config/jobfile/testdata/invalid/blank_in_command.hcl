job "a" {
  task "a" {
    command = "python train.py --epochs 3"
  }
}
