job "a" {
  count = 2;
  task "a" {
    command = "true"
  }
}
