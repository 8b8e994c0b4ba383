job "a" {
  task "a" {
    command = "true"
    env = {
      GOOD    = "1"
      "1-BAD" = "2"
    }
  }
}
