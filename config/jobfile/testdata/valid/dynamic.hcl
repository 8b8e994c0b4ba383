locals {
  where = {
    zone = "eu-1"
    pool = "nlp"
  }
  jobs = ["tokenize", "train"]
}
dynamic "job" {
  for_each = local.jobs
  iterator = item
  labels   = [item.value]
  content {
    dynamic "constraint" {
      for_each = local.where
      content {
        attribute = "label.${constraint.key}"
        value     = constraint.value
      }
    }
    task "main" {
      command = "./${item.value}.sh"
      args    = ["${item.key}", "${rank}"]
    }
  }
}
