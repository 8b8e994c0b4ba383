job "a" {
  task "a" {
    command = "python"
    args = ["-c", <<-EOT
      import os
      print(os.environ["MUSTER_RANK"])
    EOT
    , "${attempt}"]
  }
}
