job "a" {
  task "a" {
    command = "true"
    resources {
      gpu {
        model = ["H100"]
      }
    }
  }
}
