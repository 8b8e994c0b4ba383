# 2 mistakes
job "a" {
  count = 1
  count = 2
  task "a" {
    command = "true"
    resources {
      gpus = 1
    }
    resources {
      gpus = 2
    }
  }
}
