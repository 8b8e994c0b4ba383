// Package scheduler decides which pending jobs start where. It is pure: View is its image of a snapshot of the replicated
// state, Schedule gives a Plan for it, Explain says why a job waits. No clock, no randomness, no log, no I/O.
package scheduler

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// Signals is what the leader knows and the replicated state does not.
type Signals struct {
	Suspect map[muster.NodeID]string // no new work there, with the reason
	Load    map[muster.NodeID]int64  // CPU in use, in permille; only breaks ties between nodes that are equally good
}

// MaxPlanRanks bounds a plan, so that committing it never stalls Apply. One gang wider than this makes a plan of its own.
const MaxPlanRanks = 4096

// Plan is what one pass decided.
type Plan struct {
	Gangs []state.GangPlacement // in the order they were decided
	More  bool                  // the plan is full: commit it, advance, and schedule again
}

// Explained says where a job stands and why it waits.
type Explained struct {
	Job        muster.JobID
	Position   int            // in its queue's order, from 1; 0 = not pending
	Of         int            // pending jobs of the queue
	Ahead      []muster.JobID // nearest first, at most MaxAhead
	AheadCount int
	Headline   string   // "needs 2 nodes with 8 free H100 each; now 1 such node"
	Reasons    []Reason // those that can never do come last
	Note       string   // what else there is to say
}

// Reason is one reason why nodes do not do.
type Reason struct {
	Kind   string   // "busy", "short", "draining", "wrong gpu", …
	Never  bool     // not only now
	Count  int      // of nodes
	Nodes  []string // by number, at most MaxReasonNodes
	Detail string   // "6 of 8 free"
}

// Bounds of an explanation.
const (
	MaxAhead       = 5
	MaxReasonNodes = 16
)
