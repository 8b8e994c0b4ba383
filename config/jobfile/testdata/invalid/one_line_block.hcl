job "a" {
  task "a" {
    command = "true"
    resources { gpus = 1, memory = "4GiB" }
  }
}
