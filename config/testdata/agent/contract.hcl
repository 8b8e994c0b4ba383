name     = "gpu-07"
data_dir = "/var/lib/muster"
bind     = "127.0.0.1"
cluster  = "lab"
join     = ["s1.lab", "s2.lab:5000", "::1"]
insecure = false
log {
  level  = "debug"
  format = "json"
}
server {
  expect      = 3
  checkpoints = "/shared/muster/checkpoints"
}
worker {
  cost_per_hour = 2.10
  labels = {
    rack = "r7"
    zone = "eu-1"
  }
  gpus {
    simulate = 8
    model    = "H200"
    cores    = 32
    memory   = "256GiB"
  }
  reserve {
    cores  = 2
    memory = "8GiB"
  }
  allow_root = true
  gpu_ids    = "auto"
  port_range = "30000-30999"
}
raft {
  timing = "wan"
}
ports {
  http   = 0
  rpc    = 5691
  gossip = 0
}
