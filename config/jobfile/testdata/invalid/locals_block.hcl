locals {
  paths {
    a = "b"
  }
}
job "a" {
  task "a" {
    command = "true"
  }
}
