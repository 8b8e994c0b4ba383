job "a" {
  task "a" {
    script = <<-EOT
      curl -w '%%{http_code}' localhost
      echo $HOME $${HOME} $$ $1 $(( RANDOM + 1 )) "$${A[@]}" ${rank}
    EOT
    env = {
      TEXT = "a\tb\"c\\ \u00e4"
    }
  }
}
