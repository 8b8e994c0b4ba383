queue "research" {
  gpus = 64
  queue "nlp" {
    gpus = 48
  }
  queue "vision" {
    gpus = 32
  }
}
