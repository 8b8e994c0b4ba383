name       = "s1"
data_dir   = "/data"
cluster    = "lab"
datacenter = "dc1"
log_level  = "debug"
server {
  expct = 3
  gpus {
    simulate = 8
  }
}
