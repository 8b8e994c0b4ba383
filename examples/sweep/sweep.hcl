# The training example once for each learning rate, each a job of its own with one rank; they run at once where there is room. Build
# the program first (examples/train/train.hcl says how).
#
#     muster run examples/sweep/sweep.hcl
#     muster run examples/sweep/sweep.hcl --var 'rates=[0.1, 0.3]'
#
# Then, which rate was best:
#
#     muster ps -a -l example=sweep
#     for k in 0 1 2; do muster logs sweep-$k | grep 'step 300'; done
variable "rates" {
  type    = list(number)
  default = [0.05, 0.2, 0.8]
}

dynamic "job" {
  for_each = var.rates
  labels   = ["sweep-${job.key}"]
  content {
    time_limit = "10m"
    labels = {
      example = "sweep"
      rate    = job.value
    }
    task "train" {
      command = "./train"
      args    = ["-steps", 300, "-rate", job.value]
      dir     = "../train"
      resources {
        gpus   = 1
        cores  = 1
        memory = "256MiB"
      }
    }
  }
}
