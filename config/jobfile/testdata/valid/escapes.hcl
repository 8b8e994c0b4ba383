job "escapes" {
  task "escapes" {
    script = <<-EOT
      #!/usr/bin/env bash
      echo $HOME $${HOME} $${X:-y} $((MUSTER_RANK + 1)) "$1" '$$' $$${rank}
      curl -w "%%{http_code}" "https://${node.ip}/${job.id}"
    EOT
  }
}
