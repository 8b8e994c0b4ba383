job "a" {
  task "a" {
    command = "true"
    args    = ["a" "b"]
  }
}
