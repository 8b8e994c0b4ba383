job "a" {
  task "a" { command = "true" resources { gpus = 1 gpu { model = ["H100"] } } }
}
