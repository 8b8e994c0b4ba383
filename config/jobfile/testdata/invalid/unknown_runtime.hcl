# 3 mistakes
job "a" {
  task "a" {
    command = "echo"
    args    = ["${job_id}", "${node.rack}", "${array.index}"]
  }
}
