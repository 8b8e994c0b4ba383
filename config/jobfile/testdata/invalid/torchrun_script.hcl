job "a" {
  count = 2
  task "a" {
    script = <<-EOT
      source venv/bin/activate
      torchrun \
        --master_addr $MUSTER_MASTER_ADDR train.py
    EOT
  }
}
