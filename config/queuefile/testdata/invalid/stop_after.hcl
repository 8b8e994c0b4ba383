queue "a" {
  caps {
    stop_after = "20s"
  }
}
