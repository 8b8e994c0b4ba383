job "a" {
  task "a" {
    command = "true"
    resources {
      memory = 64
    }
  }
}
