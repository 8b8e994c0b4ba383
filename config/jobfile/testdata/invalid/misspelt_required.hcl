# 2 mistakes
job "a" {
  constraint {
    atribute = "label.rack"
    value    = "r7"
  }
  constraint {
    value = "r7"
  }
  task "a" {
    command = "true"
  }
}
