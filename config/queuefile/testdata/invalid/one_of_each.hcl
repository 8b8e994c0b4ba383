queue "a" {
  wieght   = 2
  max_gpus = "16"
  gpus     = { H100 = 0 }
  allow    = ["group:"]
  charge   = 0.0001
  gpu_limit = 32
  caps {
    priority = 50
    memory   = "1GiB"
  }
}
scheduling {
  order    = "fiar"
  backfill = "yes"
}
