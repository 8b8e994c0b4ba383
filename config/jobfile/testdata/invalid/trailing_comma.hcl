job "a" {
  task "a" {
    command = "true",
    args = ["x"]
  }
}
