job "everything" {
  type       = "batch"
  queue      = "default"
  priority   = 0
  time_limit = "72h"
  labels = {
    team  = "nlp"
    epoch = 3
    "a.b" = "c"
  }
  group "trainer" {
    count = 4
    topology {
      within = "node"
    }
    constraint {
      attribute = "label.zone"
      operator  = "in"
      value     = "eu-1,eu-2"
    }
    constraint {
      attribute = "node.cores"
      operator  = ">="
      value     = 16
    }
    retry {
      attempts   = 2
      on         = ["exit", "oom"]
      exit_codes = [85]
      delay      = "0s"
      max_delay  = "1m30s"
    }
    checkpoint {
      grace  = "120s"
      signal = "SIGUSR2"
      to     = "all"
    }
    disconnect {
      stop_after = "5m"
      replace    = "after_stop"
    }
    task "train" {
      command = "python"
      args    = ["train.py", "--rank", "${rank}", "--ranks=${ranks}", 3, true, "$${HOME}", "$HOME"]
      dir     = "/data/train"
      env = {
        NCCL_DEBUG = "WARN"
        OUT        = "${task.dir}/out-${attempt}"
        AGAIN      = 0.5
      }
      kill_signal   = "SIGINT"
      kill_timeout  = "0s"
      success_codes = [0, 3]
      logs {
        max_size  = "1MiB"
        max_files = 2
      }
      resources {
        gpus      = 8
        cores     = 16.5
        memory    = "128GiB"
        exclusive = true
        gpu {
          model      = ["H100", "H200"]
          min_memory = "80GiB"
        }
      }
    }
  }
}
