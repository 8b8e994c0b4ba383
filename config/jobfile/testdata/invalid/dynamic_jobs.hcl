# 2 mistakes
dynamic "job" {
  for_each = ["a", "b", "a"]
  labels   = ["sweep-${job.value}"]
  content {
    task "train" {
      command = "python train.py"
    }
  }
}
