job "a" {
  task "a" {
    command = "true"
  }
}
job "b" {
  count = 3
  task "b" {
    command = "true"
  }
}
