job "a" {
  task "a" {
    command = "echo"
    args    = [format("%03d", rank)]
  }
}
