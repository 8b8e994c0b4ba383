scheduling {
  half_life = "0s"
}
