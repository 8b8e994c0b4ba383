package wire

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// Nodes lists nodes by name; suspects (node number to reason) come from the leader.
func (r *Reader) Nodes(names []string, suspects map[uint32]string) (*ListNodesReply, error) {
	var nodes []*muster.Node
	if len(names) == 0 {
		for n := range r.snapshot.Nodes() {
			nodes = append(nodes, n)
		}
	}
	for _, name := range names {
		n, ok := r.snapshot.NodeNamed(name)
		if !ok {
			return nil, muster.Errorf(muster.KindNotFound, "there is no node %s", name).WithHint("muster node ls lists them")
		}
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *muster.Node) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	reply := &ListNodesReply{Version: VersionOf(r.Version())}
	for _, n := range nodes {
		suspicion, suspect := suspects[uint32(n.ID)]
		reply.Nodes = append(reply.Nodes, r.nodeInfo(n, suspect, suspicion))
	}
	return reply, nil
}

func (r *Reader) nodeInfo(n *muster.Node, suspect bool, suspicion string) *NodeInfo {
	nodeState := n.State()
	info := &NodeInfo{Node: NodeOf(n)}
	switch {
	case nodeState == muster.NodeLost:
		info.Reason = n.Reason
	case suspect:
		nodeState, info.Reason = muster.NodeSuspect, suspicion
	case n.Drain.On:
		info.Reason = n.Drain.Reason
	case n.Epoch != r.Version().Epoch:
		info.Reason = "its worker has not yet said what it runs: nothing new starts there"
	}
	info.State = nodeState.String()
	for a := range r.snapshot.AllocsOnNode(n.ID) {
		j := &GPUJob{Job: uint64(a.Job), Slots: uint64(a.Slots), Rank: int64(a.Rank), State: a.Phase.String()}
		if job, ok := r.snapshot.Job(a.Job); ok {
			j.Name, j.User = job.Name, job.User
		}
		info.Jobs = append(info.Jobs, j)
	}
	return info
}

// SessionOf gives the session of the node of a name; state.NoSession when it has never registered.
func (r *Reader) SessionOf(name string) string {
	if n, ok := r.snapshot.NodeNamed(name); ok {
		return n.Session
	}
	return state.NoSession
}

// NodeView is what a worker's stream carries. The caller keeps sent, what the worker was sent of each live allocation, across
// calls of one stream, and NodeView brings it forward. With nothing in sent, the view is full: all that shall run on the node.
// Else it holds what is new or changed, and, as gone, what has ended: the state knows its end, the worker may forget it.
//
// What a Desired holds beside the allocation (spec, peers) never changes in its life, so it is looked up once.
func (r *Reader) NodeView(node muster.NodeID, sent map[muster.AllocID]*Desired) *View {
	view := &View{Version: VersionOf(r.Version()), Full: len(sent) == 0, NodeState: muster.NodeStateUnknown.String()}
	if n, ok := r.snapshot.Node(node); ok {
		view.NodeState = n.State().String()
	}
	live := map[muster.AllocID]bool{}
	gangs := map[gangKey]*Desired{} // ranks of one attempt on the node share what they have in common
	for a := range r.snapshot.AllocsOnNode(node) {
		live[a.ID] = true
		alloc := AllocationOf(a)
		before, known := sent[a.ID]
		if known && proto.Equal(before.Alloc, alloc) {
			continue
		}
		if !known {
			key := gangKey{a.Job, a.Attempt}
			if before = gangs[key]; before == nil {
				before = r.gang(a)
				gangs[key] = before
			}
		}
		desired := &Desired{
			Alloc: alloc, Spec: before.Spec, User: before.User, Queue: before.Queue, Peers: before.Peers,
			Submitted: before.Submitted, SpecId: before.SpecId, JobName: before.JobName,
		}
		sent[a.ID] = desired
		view.Desired = append(view.Desired, desired)
	}
	var gone []muster.AllocID
	for id := range sent {
		if !live[id] {
			gone = append(gone, id)
			delete(sent, id)
		}
	}
	slices.SortFunc(gone, func(a, b muster.AllocID) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Counter, b.Counter))
	})
	view.Gone = AllocIDsOf(gone)
	return view
}

type gangKey struct {
	job     muster.JobID
	attempt uint32
}

// gang gives all of a Desired but the allocation.
func (r *Reader) gang(a *muster.Allocation) *Desired {
	out := &Desired{}
	j, ok := r.snapshot.Job(a.Job)
	if !ok {
		return out
	}
	out.User, out.Queue, out.Submitted, out.JobName = j.User, j.Queue, int64(j.Submitted), j.Name
	out.SpecId = slices.Clone(j.Spec[:])
	spec := r.snapshot.Spec(j.Spec)
	if spec != nil {
		out.Spec = JobSpecOf(spec)
	}
	var ranks []*muster.Allocation
	for other := range r.snapshot.AllocsOfAttempt(a.Job, a.Attempt) {
		ranks = append(ranks, other)
	}
	sortAllocs(ranks)
	for _, rank := range ranks {
		peer := &Peer{
			Group:      int64(rank.Group),
			Rank:       int64(rank.Rank),
			Gpus:       int64(rank.Slots.Count()),
			MilliCores: int64(rank.MilliCores),
			Port:       uint32(rank.Port),
		}
		if n, ok := r.snapshot.Node(rank.Node); ok {
			peer.Node, peer.Ip = n.Name, n.IP
		}
		out.Peers = append(out.Peers, peer)
	}
	return out
}
