# The smallest job: one process with one GPU. `muster run examples/hello.hcl`
job "hello" {
  task "hello" {
    script = "echo \"hello from rank $MUSTER_RANK on $MUSTER_NODE with GPU $CUDA_VISIBLE_DEVICES\""
    resources {
      gpus = 1
    }
  }
}
