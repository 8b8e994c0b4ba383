locals {
  rank = "r"
}
job "job" {
  group "group" {
    task "task" {
      command = "echo"
      args    = [for rank in ["a"] : "x-${rank}"]
      env = {
        rank = "${rank}-${local.rank}"
      }
    }
  }
}
