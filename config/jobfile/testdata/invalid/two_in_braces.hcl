job "a" {
  task "a" {
    command = "echo"
    args    = ["${rank and more}"]
  }
}
