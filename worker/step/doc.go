// Package step is the pure middle of a worker's agent: what it does next with each allocation, until when each may run, which
// view it acts on, what it reports and what it forgets. It is told what happened and asks its Hands for what follows, so that
// an agent runs it on a machine and a simulation in memory. No goroutine, no disk, no network.
package step
