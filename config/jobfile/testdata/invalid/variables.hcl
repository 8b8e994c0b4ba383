# 9 mistakes
variable "epochs" {
  type    = "number"
  default = 3
}
variable "lr" {
  type    = number
  default = "fast"
}
variable "corpus" {
  type = string
}
variable "seeds" {
  type    = list
  default = [1]
}
variable "two-words" {
  default = 1
}
variable "copy" {
  default = var.lr
}
variable "lr" {
  default = 1
}
locals {
  steps = 10 * var.epoch
}
job "a" {
  task "a" {
    command = "echo"
    args    = ["${var.corpus}", var.model]
  }
}
