name     = "s1"
data_dir = "/data"
cluster  = "lab"
log {
  level = "inf"
}
raft {
  timing = "fast"
}
worker {
  port_range = "80"
  gpus {
    memory = 512
  }
}
