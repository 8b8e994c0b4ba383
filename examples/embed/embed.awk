# Hashing embeddings: each word adds +1 or -1 to one of DIMS numbers, both chosen by a hash of the word, and the vector is made
# one long. (Weinberger et al., Feature Hashing for Large Scale Multitask Learning, 2009.) No model, no download.
#
# In: lines of text. Out: a line "NUMBER v1 … vDIMS TAB TEXT" for each n-th line, n = RANKS, beginning with line RANK + 1.
BEGIN {
  for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i
}

(NR - 1) % RANKS == RANK && NF {
  line = tolower($0)
  gsub(/[^a-z]+/, " ", line)
  n = split(line, words, " ")
  delete v
  for (i = 1; i <= n; i++) {
    h = hash(words[i])
    v[h % DIMS] += int(h / DIMS) % 2 ? 1 : -1
  }
  norm = 0
  for (d in v) norm += v[d] * v[d]
  if (norm == 0) next
  printf "%d", NR
  for (d = 0; d < DIMS; d++) printf " %.4f", v[d] / sqrt(norm)
  printf "\t%s\n", $0
}

# Below 2^24, so that every awk computes it exactly.
function hash(word,   h, i) {
  h = 5381
  for (i = 1; i <= length(word); i++) h = (h * 33 + code[substr(word, i, 1)]) % 16777213
  return h
}
