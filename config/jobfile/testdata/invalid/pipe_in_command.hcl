job "a" {
  task "a" {
    command = "cat x | wc -l"
  }
}
