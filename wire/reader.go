package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// Reader answers the API's questions from one snapshot. Errors carry a *muster.Error that a person can act on.
type Reader struct{ snapshot *state.Snapshot }

// ReaderOf reads s.
func ReaderOf(s *state.Snapshot) *Reader { return &Reader{snapshot: s} }

// Version is the version of the state that the reader reads.
func (r *Reader) Version() muster.Version { return r.snapshot.Version() }

// ResolveJob finds the job that ref names: a number, or user's own newest live (else newest) job of that name. Unknown:
// KindNotFound, saying who has one of that name ("no job train of yours; bob has one: 1042").
func (r *Reader) ResolveJob(ref *JobRef, user string) (muster.JobID, error) {
	id, name := muster.JobID(ref.GetId()), ref.GetName()
	switch {
	case id != 0:
		if _, ok := r.snapshot.Job(id); !ok {
			return 0, muster.Errorf(muster.KindNotFound, "there is no job %d", id)
		}
		return id, nil
	case name == "":
		return 0, muster.Errorf(muster.KindUsage, "no job is named").WithHint("Say its number or its name")
	}
	if j, ok := r.snapshot.JobNamed(user, name); ok {
		return j.ID, nil
	}
	for j := range r.snapshot.JobsBackward(0) {
		if j.Name == name {
			return 0, muster.Errorf(muster.KindNotFound, "no job %s of yours; %s has one: %d", name, j.User, j.ID)
		}
	}
	return 0, muster.Errorf(muster.KindNotFound, "no job %s of yours", name)
}

// AllocAt says where an allocation's logs are: the worker's RPC address and the node's name. When the node is lost, the name
// comes with an error of KindUnavailable.
func (r *Reader) AllocAt(id muster.AllocID) (address, nodeName string, err error) {
	a, ok := r.snapshot.Alloc(id)
	if !ok {
		return "", "", muster.Errorf(muster.KindNotFound, "there is no allocation %s", id)
	}
	n, ok := r.snapshot.Node(a.Node)
	if !ok {
		return "", "", muster.Errorf(muster.KindNotFound, "there is no node %d, where allocation %s was", a.Node, id)
	}
	if n.Lost {
		return "", n.Name, muster.Errorf(muster.KindUnavailable, "node %s is lost%s", n.Name, because(n.Reason))
	}
	return n.Address, n.Name, nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// LogTargets lists the allocations of a job whose logs a request asks for, in the order attempt, group, rank. A job that was
// never placed has none.
func (r *Reader) LogTargets(id muster.JobID, q *LogsRequest) ([]*muster.Allocation, error) {
	j, ok := r.snapshot.Job(id)
	if !ok {
		return nil, muster.Errorf(muster.KindNotFound, "there is no job %d", id)
	}
	if q.GetAttempt() > j.Attempt {
		return nil, muster.Errorf(muster.KindNotFound, "job %d has no attempt %d: its newest is %d", id, q.GetAttempt(), j.Attempt)
	}
	wanted := map[int64]bool{}
	for _, rank := range q.GetRanks() {
		if largest := r.largestGroup(j); rank < 0 || largest > 0 && rank >= largest {
			return nil, muster.Errorf(muster.KindNotFound, "job %d has no rank %d: its ranks are %s", id, rank, span(largest))
		}
		wanted[rank] = true
	}
	groups := r.GroupNames(id)
	if q.GetGroup() != "" && !slices.Contains(groups, q.GetGroup()) {
		return nil, muster.Errorf(muster.KindNotFound, "job %d has no group %q: its groups are %s", id, q.GetGroup(), strings.Join(groups, ", "))
	}
	var out []*muster.Allocation
	for a := range r.snapshot.AllocsOfJob(id) {
		switch {
		case q.GetGroup() != "" && groups[a.Group] != q.GetGroup():
		case q.GetAttempt() != 0 && a.Attempt != q.GetAttempt():
		case len(wanted) > 0 && !wanted[int64(a.Rank)]:
		case q.GetFailed() && !failedByItself(a):
		default:
			out = append(out, a)
		}
	}
	sortAllocs(out)
	return out, nil
}

// GroupNames gives the names of a job's groups.
func (r *Reader) GroupNames(id muster.JobID) []string {
	var names []string
	if j, ok := r.snapshot.Job(id); ok {
		if spec := r.snapshot.Spec(j.Spec); spec != nil {
			for i := range spec.Groups {
				names = append(names, spec.Groups[i].Name)
			}
		}
	}
	return names
}

func (r *Reader) largestGroup(j *muster.Job) int64 {
	largest := 0
	if spec := r.snapshot.Spec(j.Spec); spec != nil {
		for i := range spec.Groups {
			largest = max(largest, spec.Groups[i].Count)
		}
	}
	return int64(largest)
}

func span(count int64) string {
	if count <= 1 {
		return "0"
	}
	return fmt.Sprintf("0 to %d", count-1)
}

// failedByItself says whether a rank is one of those that an attempt failed by, and not one that was stopped because of it.
func failedByItself(a *muster.Allocation) bool {
	switch a.Class {
	case muster.ClassExit, muster.ClassOOM, muster.ClassTimeout, muster.ClassNode, muster.ClassGPU, muster.ClassPrepare:
		return a.Phase == muster.AllocEnded
	}
	return false
}
