// Package sim replays traces through the very state machine and scheduler that a cluster runs, in virtual time and without
// processes: what a cluster would have done, had it been given that load under that policy. Equal input and seed give equal
// output, to the byte.
package sim
