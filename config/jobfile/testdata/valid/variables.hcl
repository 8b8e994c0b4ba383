variable "model" {
  default = "7b"
}
variable "lr" {
  type    = number
  default = 3e-4
}
variable "opt" {
  type = object({ name = string, betas = list(number) })
  default = {
    name  = "adam"
    betas = [0.9, 0.95]
  }
}
variable "debug" {
  type    = bool
  default = false
}
job "train" {
  count    = var.debug ? 1 : 4
  priority = 40 + 10
  labels = {
    model = var.model
    "run-${var.model}" = true
  }
  task "train" {
    command = "python"
    args = ["train-${var.model}.py", var.lr, "--opt=${var.opt.name}", "--beta=${var.opt.betas[1]}", "${rank}"]
    env = {
      DEBUG = var.debug
      OPT   = jsonencode(var.opt)
    }
  }
}
