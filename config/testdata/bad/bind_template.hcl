name     = "s1"
data_dir = "/data"
cluster  = "lab"
bind     = "{{ GetNothing }}"
server {}
