# Four ranks train one model together, each with a GPU of its own to hold (the program is small and uses none). Build the program
# first; all nodes must see this folder.
#
#     go build -C examples/train -o train .
#     muster run examples/train/train.hcl
#
# It saves itself every 50 steps, and when it is asked to: kill a worker, drain a node, or requeue it, and it goes on.
variable "steps" {
  type    = number
  default = 600
}

job "train" {
  count      = 4
  time_limit = "30m"
  checkpoint {
    grace = "10s"                 # it looks for $MUSTER_STOP_FILE after every step
  }
  task "train" {
    command = "./train"
    args    = ["-steps", var.steps]
    resources {
      gpus   = 1
      cores  = 1
      memory = "256MiB"
    }
  }
}
