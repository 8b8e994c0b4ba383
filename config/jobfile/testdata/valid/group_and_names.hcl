job g1 {
  group "workers" {
    task main {
      command = "/bin/echo"
      args    = [("${group}"), "a\nb\t\"c\"", "\u00fc"]
    }
  }
}
