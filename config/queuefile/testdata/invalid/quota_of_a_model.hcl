queue "research" {
  gpus = {
    H100 = 64
    A100 = 64
  }
  queue "nlp" {
    gpus = { H100 = 96 }
  }
}
