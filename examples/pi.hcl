# Four ranks throw darts at a square, each with a seed of its own. They leave their counts in a folder beside this file (all
# nodes see it: one machine, or a shared disk); rank 0 waits for them, adds them up and prints the estimate.
job "pi" {
  count      = 4
  time_limit = "5m"
  task "darts" {
    script = <<-EOT
      darts=200000
      out=out/pi-$MUSTER_JOB_ID-$MUSTER_ATTEMPT
      mkdir -p $out

      hits=$(awk -v n=$darts -v seed=$((MUSTER_RANK + 1)) 'BEGIN {
        srand(seed)
        for (i = 0; i < n; i++) { x = rand(); y = rand(); hits += x * x + y * y <= 1 }
        print hits
      }')
      echo "$hits of $darts darts hit"
      echo $hits > $out/.$MUSTER_RANK
      mv $out/.$MUSTER_RANK $out/$MUSTER_RANK     # whoever sees the file sees all of it

      if [ $MUSTER_RANK = 0 ]; then
        for ((rank = 0; rank < MUSTER_RANKS; rank++)); do
          until [ -e $out/$rank ]; do sleep 0.1; done
        done
        awk -v n=$((darts * MUSTER_RANKS)) '{ hits += $1 } END { printf "pi is about %.3f\n", 4 * hits / n }' $out/*
        rm -r $out
      fi
    EOT
    resources {
      cores  = 1
      memory = "64MiB"
    }
  }
}
