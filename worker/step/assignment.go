package step

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
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

// Of is the group of the spec that the allocation belongs to.
func (a *Assignment) Of() *muster.Group { return &a.Spec.Groups[a.Alloc.Group] }

// Ranks are the places of the ranks of one group, in order.
func (a *Assignment) Ranks(group int) []Peer {
	var out []Peer
	for _, p := range a.Peers {
		if p.Group == group {
			out = append(out, p)
		}
	}
	return out
}

// Spread says whether the attempt has ranks on several nodes.
func (a *Assignment) Spread() bool {
	for _, p := range a.Peers {
		if p.Node != a.Peers[0].Node {
			return true
		}
	}
	return false
}

// Check refuses what can't be run, however it came about, so that nothing later has to.
func (a *Assignment) Check() error {
	switch {
	case a.Spec == nil || a.Alloc.Group < 0 || a.Alloc.Group >= len(a.Spec.Groups):
		return muster.Errorf(muster.KindError, "allocation %s of job %s names a group that its spec does not have", a.Alloc.ID, a.Alloc.Job)
	case len(a.Peers) == 0 || a.Alloc.Rank < 0 || a.Alloc.Rank >= len(a.Ranks(a.Alloc.Group)):
		return muster.Errorf(muster.KindError, "allocation %s of job %s came without the places of its ranks", a.Alloc.ID, a.Alloc.Job)
	}
	return nil
}

// AssignmentOf reads what a server sent; what it returns without an error can be run.
func AssignmentOf(d *wire.Desired) (*Assignment, error) {
	alloc, err := d.GetAlloc().Domain()
	if err != nil {
		return nil, err
	}
	spec, err := d.GetSpec().Domain()
	if err != nil {
		return nil, err
	}
	a := &Assignment{
		Alloc: *alloc, Spec: spec, JobName: d.GetJobName(), User: d.GetUser(), Queue: d.GetQueue(),
		Submitted: muster.Time(d.GetSubmitted()),
	}
	for _, p := range d.GetPeers() {
		a.Peers = append(a.Peers, Peer{
			Group: int(p.GetGroup()), Rank: int(p.GetRank()), Node: p.GetNode(), IP: p.GetIp(), GPUs: int(p.GetGpus()),
			MilliCores: muster.MilliCores(p.GetMilliCores()), Port: uint16(p.GetPort()),
		})
	}
	return a, a.Check()
}
