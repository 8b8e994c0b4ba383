package worker

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// assignmentOf reads what a server sent; what it returns without an error can be run.
func assignmentOf(d *wire.Desired) (*Assignment, error) {
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
	return a, a.check()
}

func compareIDs(a, b muster.AllocID) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Counter, b.Counter))
}

func sortedIDs[V any](m map[muster.AllocID]V) []muster.AllocID {
	return slices.SortedFunc(maps.Keys(m), compareIDs)
}
