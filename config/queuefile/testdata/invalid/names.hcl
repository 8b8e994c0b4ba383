queue "research/nlp" {
  gpus = 8
}
queue "two words" {
}
queue "a" {
}
queue "a" {
}
queue {
}
