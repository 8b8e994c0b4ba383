# 3 mistakes
job "a" {
  replicas = 3
  task "a" {
    command = "true"
    resources {
      limits {
        memory = "1Gi"
      }
    }
    workingDir = "/data"
  }
}
