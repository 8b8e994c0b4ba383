queue "research" {
  defaults {
    time_limit = "2d"
  }
  queue "nlp" {
    caps {
      time_limit = "1d"
    }
  }
}
