job "a" {
  task "a" {
    command = "true"
    dir     = "~/work"
  }
}
