job "a" {
  preemptible = False
  task "a" {
    command = "true"
  }
}
