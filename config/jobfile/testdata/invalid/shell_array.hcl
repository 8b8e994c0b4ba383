# 3 mistakes
job "a" {
  task "a" {
    script = <<-EOT
      for x in "${A[@]}"; do echo "${x%.*}" ${1}; done
    EOT
  }
}
