# What a queue says holds for those in it, until they say otherwise.
queue "lab" {
  allow = ["ann", "group:lab"]
  gpus  = 16
  defaults {
    time_limit = "4h"
    priority   = 40
  }
  caps {
    time_limit = "1d"
    priority   = 80
  }
  queue "fast" {
    weight = 0.5
    gpus   = { H100 = 8 }
    defaults {
      time_limit = "1h"
    }
    caps {
      priority   = 60
      stop_after = "2m"
    }
  }
  queue "open" {
    allow = ["*"]
    queue "deep" {
      gpus = 4
    }
  }
}
queue "default" {
  max_gpus = 8
}
queue "A-z_9" {
  constraint {
    attribute = "node.gpus"
    operator  = ">="
    value     = 8
  }
  constraint {
    attribute = "label.fabric"
    operator  = "exists"
  }
}
scheduling {
  fair_share   = false
  order        = "shortest"
  backfill     = "none"
  reservations = 0
  round        = "6m"
  wide {
    gpus = 0
  }
}
