job "a" {
  task "a" {
    script = <<-EOT
      echo one
      EOT }
  }
}
