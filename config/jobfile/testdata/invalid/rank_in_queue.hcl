job "a" {
  labels = { rank = "${rank}" }
  task "a" {
    command = "echo"
  }
}
