job "x" {
  taks "t" {
    command = "true"
  }
}
