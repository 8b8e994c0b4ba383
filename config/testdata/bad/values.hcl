name     = "s1"
data_dir = "data"
cluster  = "lab"
bind     = "0.0.0.0"
join     = ["s1:0", "a b"]
server {
  expect = 30
  voters = 0
}
worker {
  labels = {
    "7up" = "x"
  }
  gpus {
    simulate = 65
  }
}
ports {
  http = 5000
  rpc  = 5000
}
