queue "nlp" {
  gpus     = 64
  max_gpus = 32
}
