job "a" {
  task "a" {
    script = <<-EOT
      %{ if true }
      echo a
      %{ else }
      echo b
      %{ endif }
    EOT
  }
}
