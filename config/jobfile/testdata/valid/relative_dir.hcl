job "rel" {
  task "rel" {
    command = "${task.dir}/prog"
    dir     = "../data/rank-${rank}"
  }
}
