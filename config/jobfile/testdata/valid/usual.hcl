job "train-7b" {
  time_limit = "3d"
  count      = 2

  checkpoint {
    grace = "180s"
  }
  topology {
    within = "rack"
  }
  task "train" {
    script = <<-EOT
      source $HOME/venv/bin/activate
      exec torchrun train.py --config conf/7b.yaml --ckpt $MUSTER_CHECKPOINT_DIR
    EOT
    resources {
      gpus = 8
      gpu {
        model = ["H100"]
      }
    }
  }
}
