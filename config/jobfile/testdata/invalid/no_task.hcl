job "a" {
  count = 2
}
