# 2 mistakes
job "a" {
  task "a" {
    command   = "true"
    resources = { gpus = 1 }
    env {
      A = "b"
    }
  }
}
