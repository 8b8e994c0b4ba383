# 2 mistakes
locals {
  a = local.b
  b = "${local.c}/x"
  c = [local.a]
  me = local.me
  uses = local.a
}
job "a" {
  task "a" {
    command = "echo"
    args    = [local.uses]
  }
}
