# 3 mistakes
variable "epochs" {
  default = 3
}
job "a" {
  task "a" {
    command = "echo"
    args    = [epochs, "${epochs}", var]
  }
}
