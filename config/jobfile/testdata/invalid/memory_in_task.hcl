job "a" {
  task "a" {
    command = "true"
    memory  = "4GiB"
  }
}
