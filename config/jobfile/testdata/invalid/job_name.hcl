job "Train_7B" {
  task "a" {
    command = "true"
  }
}
