job "a" {
  task "a" {
    command = "true"
  }
}
job "a" {
  task "a" {
    command = "false"
  }
}
