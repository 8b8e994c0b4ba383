name     = "s1"
data_dir = "/data"
cluster  = "lab"
bind     = "192.0.2.7"
server {}
