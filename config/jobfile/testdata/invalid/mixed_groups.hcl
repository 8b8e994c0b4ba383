# 2 mistakes
job "a" {
  count = 2
  retry {
    attempts = 1
  }
  group "g" {
    task "a" {
      command = "true"
    }
  }
}
