job "plain" {
  task "plain" {
    script = <<EOT
awk '{ s += $1 } END { print s }' < in.txt
EOT
    env = {}
  }
}
