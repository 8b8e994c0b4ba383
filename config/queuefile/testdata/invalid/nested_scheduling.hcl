queue "a" {
  scheduling {
    order = "fifo"
  }
}
