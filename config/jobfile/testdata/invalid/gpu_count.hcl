job "a" {
  task "a" {
    command = "true"
    resources {
      gpu {
        count = 4
      }
    }
  }
}
