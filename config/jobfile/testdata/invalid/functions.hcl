# 5 mistakes
job "a" {
  task "a" {
    command = "echo"
    args    = [uppr("a"), timestamp(), env("HOME"), element([], 0), upper("a", "b")]
  }
}
