scheduling {
  objective = "cost"
}
