job "fresh" {
  task "fresh" {
    command = "true"
    dir     = "${task.dir}"
  }
}
