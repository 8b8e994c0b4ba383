package worker

import (
	"github.com/musterhpc/muster"
)

// Assignment is one allocation with all that is needed to run it.
type Assignment struct {
	Alloc     muster.Allocation
	Spec      *muster.JobSpec
	JobName   string
	User      string
	Queue     string
	Submitted muster.Time
	Peers     []Peer // all ranks of the attempt, in the order group, rank
}

// Peer is where a rank of the attempt is.
type Peer struct {
	Group      int
	Rank       int
	Node       string
	IP         string
	GPUs       int
	MilliCores muster.MilliCores
	Port       uint16 // of the first: the master port
}

// group is the group of the spec that the allocation belongs to.
func (a *Assignment) group() *muster.Group { return &a.Spec.Groups[a.Alloc.Group] }

// peers are the ranks of one group, in order.
func (a *Assignment) peers(group int) []Peer {
	var out []Peer
	for _, p := range a.Peers {
		if p.Group == group {
			out = append(out, p)
		}
	}
	return out
}

// spread says whether the attempt has ranks on several nodes.
func (a *Assignment) spread() bool {
	for _, p := range a.Peers {
		if p.Node != a.Peers[0].Node {
			return true
		}
	}
	return false
}

// check refuses what can't be run, however it came about, so that nothing later has to.
func (a *Assignment) check() error {
	switch {
	case a.Spec == nil || a.Alloc.Group < 0 || a.Alloc.Group >= len(a.Spec.Groups):
		return muster.Errorf(muster.KindError, "allocation %s of job %s names a group that its spec does not have", a.Alloc.ID, a.Alloc.Job)
	case len(a.Peers) == 0 || a.Alloc.Rank < 0 || a.Alloc.Rank >= len(a.peers(a.Alloc.Group)):
		return muster.Errorf(muster.KindError, "allocation %s of job %s came without the places of its ranks", a.Alloc.ID, a.Alloc.Job)
	}
	return nil
}
