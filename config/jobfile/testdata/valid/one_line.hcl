job "oneline" {
  labels = { a = "b" }
  retry { attempts = 1 }
  task "oneline" { command = "true" }
}
