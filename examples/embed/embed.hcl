# Four ranks turn the lines of a text into vectors, each its part; rank 0 puts them together and finds the lines nearest to a
# query. They meet in files: out/ beside this file must be seen by all nodes (one machine, or a shared disk).
#
#     muster run examples/embed/embed.hcl --var 'query=the white rabbit with pink eyes'
variable "query" {
  type    = string
  default = "it was the best of times"
}
variable "dims" {
  type    = number
  default = 64
}

job "embed" {
  count      = 4
  time_limit = "10m"
  task "embed" {
    env = {
      QUERY = var.query
      DIMS  = var.dims
    }
    script = <<-EOT
      out=out/embed-$MUSTER_JOB_ID-$MUSTER_ATTEMPT
      mkdir -p $out
      embed() { LC_ALL=C awk -v DIMS=$DIMS -v RANK=$1 -v RANKS=$2 -f embed.awk; }

      embed $MUSTER_RANK $MUSTER_RANKS < passages.txt > $out/.$MUSTER_RANK
      mv $out/.$MUSTER_RANK $out/part-$MUSTER_RANK      # whoever sees the file sees all of it
      echo "embedded $(wc -l < $out/part-$MUSTER_RANK) lines in $DIMS dimensions"

      if [ $MUSTER_RANK = 0 ]; then
        for ((rank = 0; rank < MUSTER_RANKS; rank++)); do
          until [ -e $out/part-$rank ]; do sleep 0.1; done
        done
        sort -n $out/part-* > $out/vectors
        echo "$QUERY" | embed 0 1 > $out/query
        echo "nearest to \"$QUERY\":"
        LC_ALL=C awk -v TOP=3 -f nearest.awk $out/query $out/vectors
      fi
    EOT
    resources {
      gpus   = 1
      cores  = 1
      memory = "256MiB"
    }
  }
}
