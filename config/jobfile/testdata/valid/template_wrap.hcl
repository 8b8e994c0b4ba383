variable "n" {
  default = 2
}
variable "list" {
  default = ["a", "b"]
}
job "a" {
  count = "${var.n}"
  task "a" {
    command = "echo"
    args    = "${var.list}"
  }
}
