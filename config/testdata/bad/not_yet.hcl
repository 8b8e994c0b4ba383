name     = "s1"
data_dir = "/data"
cluster  = "lab"
server {
  webhook = "https://hooks.lab"
}
worker {
  users   = ["uid>=1000"]
  gpu_ids = "uuid"
  mounts  = []
  require = ["cgroup"]
}
