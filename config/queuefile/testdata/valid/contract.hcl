queue "research" {
  weight = 2
  queue "nlp" {
    allow = ["group:nlp"]
    gpus = {
      H100 = 64
      H200 = 32
    }
    max_gpus    = 160
    user_gpus   = 32
    max_running = 200
    max_pending = 100000
    defaults {
      time_limit = "24h"
      priority   = 50
    }
    caps {
      time_limit = "7d"
      priority   = 60
      stop_after = "15m"
    }
    min_runtime = "10m"
    constraint {
      attribute = "label.pool"
      value     = "nlp"
    }
  }
}
queue "interactive" {
  max_gpus  = 16
  user_gpus = 1
  caps {
    time_limit = "12h"
  }
}
queue "scavenger" {
  charge = 0
}
scheduling {
  fair_share      = true
  order           = "fair"
  reservations    = 8
  max_preemptions = 0
  backfill        = "easy"
  preemption      = "fair"
  half_life       = "7d"
  objective       = "throughput"
  round           = "0s"
  wide {
    gpus  = 8
    after = "10h"
  }
}
