# 12 mistakes
job "a" {
  count    = "2"
  priority = 1.5
  labels   = ["a"]
  task "a" {
    command       = ["true"]
    args          = "x"
    env           = { A = ["x"], B = null }
    success_codes = []
    resources {
      gpus      = -1.5
      cores     = 0.0001
      exclusive = "yes"
      memory    = null
    }
  }
}
