queue "nlp" {
  budget {
    period    = "month"
    gpu_hours = 20000
  }
  idle {
    after = "1h"
  }
}
