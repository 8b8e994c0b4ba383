name     = "w1"
data_dir = "/data"
cluster  = "lab"
bind     = "{{ GetAllInterfaces | include \"flag\" \"loopback\" | include \"type\" \"ipv4\" | attr \"address\" }}"
worker {
}
