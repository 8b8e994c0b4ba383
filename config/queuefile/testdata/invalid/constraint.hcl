queue "nlp" {
  constraint {
    attribute = "label.pool"
    operator  = "matches"
    value     = "("
  }
}
