job "a" {
  task "a" {
    script = file("file.sh")
    env = {
      LINES = length(split("\n", file("file.sh")))
    }
  }
}
