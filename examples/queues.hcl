# Who shares the cluster how. Try it on a dev cluster:  muster queue apply examples/queues.hcl --dry-run

queue "research" {
  weight = 2
  queue "nlp" {
    gpus      = 8
    max_gpus  = 24
    user_gpus = 16
    defaults {
      time_limit = "24h"
    }
    caps {
      time_limit = "7d"
      priority   = 60
    }
  }
  queue "vision" {
    gpus = 4
  }
}

queue "interactive" {
  max_gpus  = 4
  user_gpus = 1
  caps {
    time_limit = "12h"
  }
}

queue "scavenger" {
  charge = 0
}
