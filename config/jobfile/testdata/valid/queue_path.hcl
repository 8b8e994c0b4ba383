job "a" {
  queue    = "research/nlp"
  priority = 100
  task "a" {
    command = "true"
  }
}
