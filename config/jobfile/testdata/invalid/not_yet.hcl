# 11 mistakes
job "a" {
  type        = "service"
  start_after = "2026-12-24T18:00:00+01:00"
  array {
    size = 200
  }
  elastic {
    min = 2
  }
  topology {
    within = "rack"
    prefer = "nvlink"
  }
  checkpoint {
    every = "30m"
  }
  disconnect {
    replace = "immediately"
  }
  task "a" {
    image   = "x"
    command = "echo"
    artifact {
      source = "x"
    }
    resources {
      gpus = 1
      disk = "1GiB"
      gpu {
        mig = "1g.10gb"
      }
    }
  }
}
