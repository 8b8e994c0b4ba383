# 2 mistakes
job {
  task "a" {
    command = "true"
    resources "big" {
      gpus = 1
    }
  }
}
