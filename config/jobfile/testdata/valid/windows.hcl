job "a" {
  task "a" {
    script = <<-EOT
      echo a
    EOT
  }
}
