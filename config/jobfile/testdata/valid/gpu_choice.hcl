job "a" {
  count = 2
  topology {
    within = "rack"
  }
  constraint {
    attribute = "label.ib"
    operator  = "exists"
  }
  task "a" {
    command = "nvidia-smi"
    resources {
      gpus      = 4
      cores     = 0.125
      memory    = "1.5GiB"
      exclusive = true
      gpu {
        model      = ["H100", "H200"]
        min_memory = "80GiB"
      }
    }
  }
}
