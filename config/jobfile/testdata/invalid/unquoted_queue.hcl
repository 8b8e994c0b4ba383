# 2 mistakes
job "a" {
  queue = research/nlp
  task "a" {
    command = train.py
  }
}
