job "a" {
  group "g" {
    disconnect {
      stop_after = "5s"
    }
    task "a" {
      command = "true"
    }
  }
}
