# 2 mistakes
variable "queue" {
  default = null
}
job "a" {
  queue    = var.queue
  priority = null
  task "a" {
    command = "echo"
  }
}
