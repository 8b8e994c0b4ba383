// Package simulation runs the replicated state, the scheduler, a leader's duties and the agents' decisions in one goroutine, on
// virtual clocks, over a virtual network, under faults drawn from a seed; it judges the promises along the way, and tells a
// failing seed as a short story. DESIGN.md says what is real in it and what is modelled.
package simulation
