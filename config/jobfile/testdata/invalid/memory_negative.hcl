# 2 mistakes
job "a" {
  task "a" {
    command = "true"
    resources {
      memory = "-1GiB"
      cores  = -2
    }
  }
}
