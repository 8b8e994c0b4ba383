# 2 mistakes
job "a" {
  task "a" {
    command = "true"
    start   = "frist"
    resources {
      gpus = 1
      gpu {
        share = 1.5
      }
    }
  }
}
