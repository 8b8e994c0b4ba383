job "a" {
  task "a" {
    command = "echo"
    args    = ["${job.name == "x" ? 1 : 2}"]
  }
}
