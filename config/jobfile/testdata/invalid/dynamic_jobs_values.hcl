dynamic "job" {
  for_each = [1, 2, 3]
  labels   = ["sweep-${job.value}"]
  content {
    priority = 100 * job.value
    task "train" {
      command = "true"
    }
  }
}
