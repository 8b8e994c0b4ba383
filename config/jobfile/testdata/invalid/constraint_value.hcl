job "a" {
  constraint {
    attribute = "label.zone"
    operator  = "matches"
    value     = "("
  }
  task "a" {
    command = "true"
  }
}
