// Package muster is the domain: jobs, nodes, GPUs, allocations, queues and the words for them.
//
// It imports the standard library only. Everything here is a value: no clock, no disk, no network. The replicated state
// (fsm/state) stores these values, the scheduler decides over them, the wire converts them.
package muster
