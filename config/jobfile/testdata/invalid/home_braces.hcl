# 4 mistakes
job "a" {
  task "a" {
    script = <<-EOT
      source ${HOME}/venv/bin/activate
      python train.py --out ${OUT:-/tmp} --n ${#LIST}
      curl -w '%{http_code}' localhost
    EOT
  }
}
