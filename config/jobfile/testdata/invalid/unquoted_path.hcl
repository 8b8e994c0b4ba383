job "a" {
  task "a" {
    command = true.sh
    dir     = /data/train
  }
}
