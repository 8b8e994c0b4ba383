# 5 mistakes
job "a" {
  task "a" {
    script = <<-EOT
      echo ${HOME}
      echo ${X:-y}
      echo ${#X} ${i}
      curl -w "%{http_code}" localhost
    EOT
  }
}
