locals {
  out  = "${local.root}/runs"
  root = "/data"
}
locals {
  gpus  = local.nodes * local.each
  nodes = 2
  each  = 4
}
job "a" {
  count = local.nodes
  task "a" {
    command = "echo"
    args    = [local.out, "${local.gpus} GPUs", "rank ${rank} of ${local.nodes}"]
    resources {
      gpus = local.each
    }
  }
}
