# 8 mistakes
variable "n" {
  default = 3
}
variable "list" {
  default = ["a"]
}
job "a" {
  count      = "${var.list[0]}"
  queue      = var.n
  time_limit = var.n
  priority   = 1.5 * var.n
  labels     = var.list
  task "a" {
    command = "echo"
    args    = var.n
    env = {
      A = var.list
      B = "${var.list}"
    }
  }
}
