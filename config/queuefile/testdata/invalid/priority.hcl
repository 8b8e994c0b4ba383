queue "a" {
  caps {
    priority = 101
  }
}
