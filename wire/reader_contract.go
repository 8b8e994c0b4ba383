package wire

import (
	"github.com/musterhpc/muster"
)

// The API's questions, answered from one snapshot. Errors carry a *muster.Error that a person can act on.

// Version is the version of the state that the reader reads.
func (r *Reader) Version() muster.Version { panic("contract") }

// ResolveJob finds the job that ref names: a number, or user's own newest live (else newest) job of that name. Unknown:
// KindNotFound, saying who has one of that name ("no job train of yours; bob has one: 1042").
func (r *Reader) ResolveJob(ref *JobRef, user string) (muster.JobID, error) { panic("contract") }

// Job describes one job; detail adds attempts and the ranks of earlier ones, spec the whole spec.
func (r *Reader) Job(id muster.JobID, detail, spec bool) (*JobInfo, bool) { panic("contract") }

// Jobs lists jobs, newest first, a page at a time.
func (r *Reader) Jobs(q *ListJobsRequest, user string) (*ListJobsReply, error) { panic("contract") }

// Nodes lists nodes by name; suspects (node number to reason) come from the leader.
func (r *Reader) Nodes(names []string, suspects map[uint32]string) (*ListNodesReply, error) {
	panic("contract")
}

// NodeView is what a worker's stream carries: everything when since is zero, else what the named jobs' or the node's change
// may have touched. The caller keeps sent, the set of allocations and their content that the worker was sent, across calls.
func (r *Reader) NodeView(node muster.NodeID, sent map[muster.AllocID]*Desired) *View {
	panic("contract")
}

// AllocAt says where an allocation's logs are: the worker's RPC address, and why not when the node is lost.
func (r *Reader) AllocAt(id muster.AllocID) (address, nodeName string, err error) { panic("contract") }

// LogTargets lists the allocations of a job whose logs a request asks for, in the order attempt, group, rank.
func (r *Reader) LogTargets(id muster.JobID, q *LogsRequest) ([]*muster.Allocation, error) {
	panic("contract")
}
