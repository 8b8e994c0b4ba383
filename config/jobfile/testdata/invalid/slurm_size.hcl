# 2 mistakes
job "a" {
  time_limit = "4:00:00"
  task "a" {
    command = "true"
    resources {
      memory = "64G"
    }
  }
}
