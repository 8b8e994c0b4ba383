# The TOP lines whose vectors are nearest to the query's. First file: the query's vector, second: all vectors.
{
  tab = index($0, "\t")
  n = split(substr($0, 1, tab - 1), field, " ")
}
NR == FNR {
  for (i = 2; i <= n; i++) query[i] = field[i]
  next
}
{
  score = 0
  for (i = 2; i <= n; i++) score += field[i] * query[i]
  printf "%.3f line %d: %s\n", score, field[1], substr($0, tab + 1) | "sort -k1,1nr -k3,3n | head -n " TOP
}
