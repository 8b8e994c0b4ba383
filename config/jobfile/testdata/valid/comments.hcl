# one
// two
/* three
   lines */
job "a" { # behind
  task "a" {
    command = "true" // here too
  }
}
