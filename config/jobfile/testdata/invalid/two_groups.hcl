job "a" {
  group "g" {
    task "a" {
      command = "true"
    }
  }
  group "h" {
    task "a" {
      command = "true"
    }
  }
}
