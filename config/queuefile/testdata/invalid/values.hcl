queue "a" {
  gpus        = -1
  weight      = 0
  max_gpus    = 0
  allow       = []
  min_runtime = 600
  priority    = 5
  caps {
    priority   = 101
    stop_after = "20s"
  }
}
scheduling {
  half_life = "1 week"
}
