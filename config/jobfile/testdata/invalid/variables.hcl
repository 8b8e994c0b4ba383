# 3 mistakes
variable "epochs" {
  default = 3
}
locals {
  corpus = "/data"
}
job "a" {
  task "a" {
    command = "echo"
    args    = ["${var.epochs}"]
  }
}
