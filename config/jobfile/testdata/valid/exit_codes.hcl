job "a" {
  retry {
    attempts   = 2
    on         = ["exit"]
    exit_codes = [85, 86]
  }
  task "a" {
    command       = "true"
    success_codes = [0, 3]
    kill_timeout  = "0s"
  }
}
