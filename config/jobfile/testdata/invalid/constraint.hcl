job "a" {
  constraint {
    attribute = "label.zone"
    value     = "a"
  }
  constraint {
    attribute = "label.mem"
    operator  = "~"
    value     = 8
  }
  task "a" {
    command = "true"
  }
}
