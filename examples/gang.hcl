# Two ranks of eight GPUs each: both start, or neither. They count while the cluster around them changes its leader.
job "gang" {
  count      = 2
  time_limit = "5m"
  task "count" {
    script = <<-EOT
      echo "rank $MUSTER_RANK of $MUSTER_RANKS on $MUSTER_NODE, $(echo $MUSTER_GPUS | tr ',' '\n' | wc -l) GPUs, master at $MASTER_ADDR:$MASTER_PORT"
      for second in 1 2 3 4 5 6; do
        sleep 1
        echo "second $second"
      done
    EOT
    resources {
      gpus = 8
    }
  }
}
