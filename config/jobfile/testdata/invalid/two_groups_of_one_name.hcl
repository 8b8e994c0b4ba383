job "a" {
  group "g" {
    task "a" {
      command = "true"
    }
  }
  group "g" {
    task "a" {
      command = "true"
    }
  }
}
