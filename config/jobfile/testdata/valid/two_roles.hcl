# A trainer and its actors: one gang, two roles.
job "rollout" {
  group "trainer" {
    task "train" {
      command = "train"
      resources {
        gpus = 8
      }
    }
  }
  group "actor" {
    count = 4
    task "act" {
      command = "act"
      args    = ["--rank", "${rank}", "--of", "${ranks}"]
      resources {
        gpus = 1
      }
    }
  }
}
