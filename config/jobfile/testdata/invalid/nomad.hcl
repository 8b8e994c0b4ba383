# 4 mistakes
job "a" {
  datacenters = ["dc1"]
  group "g" {
    restart {
      attempts = 2
    }
    task "a" {
      driver = "exec"
      config {
        command = "true"
      }
      command = "true"
    }
  }
}
