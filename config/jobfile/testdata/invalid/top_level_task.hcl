task "a" {
  command = "true"
}
