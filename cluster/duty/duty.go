// Package duty is what a leader decides: whose lease goes on and whose has run out, how recently a majority took this server
// for the leader, whose back-off has passed, which ended jobs are forgotten. Pure: it is told the time and the state, so that a
// cluster runs it on real clocks and a simulation on its own.
package duty

import "time"

// Boot is a moment since the machine started, suspension included. Zero is before everything.
type Boot time.Duration
