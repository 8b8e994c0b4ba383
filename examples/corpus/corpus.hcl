# Four ranks share out the text files of a folder and count their words; rank 0 merges what they found. They meet only in
# files: out/ beside this file must be seen by all nodes (one machine, or a shared disk).
#
# The result stays in out/corpus-JOB-ATTEMPT/words.txt, a line "COUNT WORD" for each word, most frequent first.
job "corpus" {
  count      = 4
  time_limit = "10m"
  labels = {
    example = "corpus"
  }
  task "count" {
    script = <<-EOT
      out=out/corpus-$MUSTER_JOB_ID-$MUSTER_ATTEMPT
      mkdir -p $out
      export LC_ALL=C

      # Rank r of n takes each n-th file. A word is a run of letters, in lower case.
      files=$(ls texts/*.txt | awk -v r=$MUSTER_RANK -v n=$MUSTER_RANKS 'NR % n == r')
      cat /dev/null $files | tr -cs 'A-Za-z' '\n' | tr 'A-Z' 'a-z' | awk '
        NF { count[$1]++ }
        END { for (word in count) print count[word], word }' > $out/.$MUSTER_RANK
      mv $out/.$MUSTER_RANK $out/rank-$MUSTER_RANK     # whoever sees the file sees all of it
      echo "$(echo $files | wc -w) files: $(awk '{ n += $1 } END { print n + 0 }' $out/rank-$MUSTER_RANK) words"

      if [ $MUSTER_RANK = 0 ]; then
        for ((rank = 0; rank < MUSTER_RANKS; rank++)); do
          until [ -e $out/rank-$rank ]; do sleep 0.1; done
        done
        awk '{ count[$2] += $1 } END { for (word in count) print count[word], word }' $out/rank-* |
          sort -k1,1nr -k2 > $out/.words
        mv $out/.words $out/words.txt
        awk '{ n += $1 } END { print "total", n, "words,", NR, "different" }' $out/words.txt
        head -n 5 $out/words.txt
      fi
    EOT
    resources {
      cores  = 1
      memory = "256MiB"
    }
  }
}
