package state

import (
	"iter"

	"github.com/musterhpc/muster"
)

// Snapshot is an immutable image of the state at one index.
type Snapshot struct {
	t      tables
	index  muster.Index
	digest uint64
	marks  digestLog
	events eventLog
}

// Version is the epoch and the log position of the image.
func (s *Snapshot) Version() muster.Version {
	return muster.Version{Epoch: s.t.cluster.Epoch, Index: s.index}
}

// Digest is equal on all servers at an equal index and feature level.
func (s *Snapshot) Digest() uint64 { return s.digest }

// DigestAt gives the digest as of a log position: the snapshot's own, or a multiple of 1,000 that this process has passed.
func (s *Snapshot) DigestAt(index muster.Index) (uint64, bool) {
	if index == s.index {
		return s.digest, true
	}
	return s.marks.at(index)
}

// Cluster gives the cluster's row.
func (s *Snapshot) Cluster() Cluster { return s.t.cluster }

// Job gives a job.
func (s *Snapshot) Job(id muster.JobID) (*muster.Job, bool) { return found(s.t.jobs.get(id)) }

// Jobs yields the jobs from a number on, ascending.
func (s *Snapshot) Jobs(from muster.JobID) iter.Seq[*muster.Job] { return s.t.jobs.from(from) }

// JobsBackward yields the jobs up to a number, descending; 0 begins at the newest.
func (s *Snapshot) JobsBackward(from muster.JobID) iter.Seq[*muster.Job] {
	return func(yield func(*muster.Job) bool) {
		each := func(c cell[muster.JobID, muster.Job]) bool { return yield(&c.item.row) }
		if from == 0 {
			s.t.jobs.tree.Descend(each)
			return
		}
		s.t.jobs.tree.DescendLessOrEqual(cell[muster.JobID, muster.Job]{key: from}, each)
	}
}

// JobNamed gives a user's newest live job of a name, else the newest.
func (s *Snapshot) JobNamed(user, name string) (*muster.Job, bool) {
	hash := nameHash(user, name)
	for k := range s.t.names.from(nameKey{hash: hash, job: ^muster.JobID(0)}) {
		if k.hash != hash {
			break
		}
		if j := s.t.jobs.get(k.job); j.User == user && j.Name == name {
			return j, true
		}
	}
	return nil, false
}

// JobCount is the number of jobs, ended ones included.
func (s *Snapshot) JobCount() int { return s.t.jobs.len() }

// Spec gives an interned spec; nil when no job has it.
func (s *Snapshot) Spec(id muster.SpecID) *muster.JobSpec {
	if row := s.t.specs.get(id); row != nil {
		return row.Spec
	}
	return nil
}

// Specs yields all interned specs, each with how many jobs have it.
func (s *Snapshot) Specs() iter.Seq[*SpecRow] { return s.t.specs.all() }

// Shape gives an interned shape. A shape goes with the last live job that has it.
func (s *Snapshot) Shape(id muster.ShapeID) (ShapeRow, bool) {
	if row := s.t.shapes.get(id); row != nil {
		return *row, true
	}
	return ShapeRow{}, false
}

// Pending yields the jobs that may start, in the order of PendingKey.
func (s *Snapshot) Pending() iter.Seq[PendingKey] { return s.t.pending.all() }

// IsPending says whether k is in the pending index.
func (s *Snapshot) IsPending(k PendingKey) bool { return s.t.pending.tree.Has(k) }

// BackingOff yields the pending jobs that wait for the delay of a retry.
func (s *Snapshot) BackingOff() iter.Seq[*muster.Job] {
	return func(yield func(*muster.Job) bool) {
		for id := range s.t.backingOff.all() {
			if !yield(s.t.jobs.get(id)) {
				return
			}
		}
	}
}

// Ended yields the jobs that ended before a time, the oldest end first.
func (s *Snapshot) Ended(before muster.Time) iter.Seq[muster.JobID] {
	return func(yield func(muster.JobID) bool) {
		for k := range s.t.ended.all() {
			if k.finished >= before || !yield(k.job) {
				return
			}
		}
	}
}

// StartDue yields the jobs that were to start before a time and have not been placed, the earliest first.
func (s *Snapshot) StartDue(before muster.Time) iter.Seq[muster.JobID] {
	return func(yield func(muster.JobID) bool) {
		for k := range s.t.starts.all() {
			if k.by >= before || !yield(k.job) {
				return
			}
		}
	}
}

// Alloc gives an allocation.
func (s *Snapshot) Alloc(id muster.AllocID) (*muster.Allocation, bool) {
	return found(s.t.allocs.get(id))
}

// AllocsOfJob yields the allocations of all attempts of a job, by number.
func (s *Snapshot) AllocsOfJob(id muster.JobID) iter.Seq[*muster.Allocation] {
	return s.allocs(id, 0, func(k jobAllocKey) bool { return k.job == id })
}

// AllocsOfAttempt yields the allocations of one attempt of a job, by number.
func (s *Snapshot) AllocsOfAttempt(id muster.JobID, attempt uint32) iter.Seq[*muster.Allocation] {
	return s.allocs(id, attempt, func(k jobAllocKey) bool { return k.job == id && k.attempt == attempt })
}

func (s *Snapshot) allocs(id muster.JobID, attempt uint32, of func(jobAllocKey) bool) iter.Seq[*muster.Allocation] {
	return func(yield func(*muster.Allocation) bool) {
		for k := range s.t.jobAllocs.from(jobAllocKey{job: id, attempt: attempt}) {
			if !of(k) || !yield(s.t.allocs.get(k.alloc)) {
				return
			}
		}
	}
}

// AllocsOnNode yields the allocations of a node that have not ended, by number.
func (s *Snapshot) AllocsOnNode(id muster.NodeID) iter.Seq[*muster.Allocation] {
	return func(yield func(*muster.Allocation) bool) {
		for k := range s.t.nodeAllocs.from(nodeAllocKey{node: id}) {
			if k.node != id || !yield(s.t.allocs.get(k.alloc)) {
				return
			}
		}
	}
}

// Node gives a node, one that was removed too: what ran there names it.
func (s *Snapshot) Node(id muster.NodeID) (*muster.Node, bool) { return found(s.t.nodes.get(id)) }

// NodeNamed gives the node of a name; one that was removed is none any more.
func (s *Snapshot) NodeNamed(name string) (*muster.Node, bool) { return found(s.t.presentNode(name)) }

// NodeOfGPU gives the node and slot of a GPU: where it is alive, else where it was.
func (s *Snapshot) NodeOfGPU(uuid string) (*muster.Node, int, bool) {
	n, slot := s.t.nodeOfGPU(uuid)
	return n, slot, n != nil
}

// Nodes yields the nodes by number, without those that were removed.
func (s *Snapshot) Nodes() iter.Seq[*muster.Node] { return s.t.present() }

// Queue gives the queue of a name.
func (s *Snapshot) Queue(name string) (*muster.Queue, bool) { return found(s.t.queues.get(name)) }

// Policy is how the cluster schedules.
func (s *Snapshot) Policy() muster.Policy {
	if p := s.t.cluster.Policy; p != nil {
		return *p
	}
	return muster.DefaultPolicy()
}

// Hold gives the places that are held for a job that waits.
func (s *Snapshot) Hold(id muster.JobID) (*HoldRow, bool) { return found(s.t.holds.get(id)) }

// Holds yields what is held for jobs that wait, by the job's number.
func (s *Snapshot) Holds() iter.Seq[*HoldRow] { return s.t.holds.all() }

// Usage yields what users hold and have used, by queue and user.
func (s *Snapshot) Usage() iter.Seq[*UsageRow] { return s.t.usage.all() }

// History yields how long jobs of a kind ran, by GPU model where they are told apart.
func (s *Snapshot) History(user, stem string, gpus int) iter.Seq[*HistoryRow] {
	return func(yield func(*HistoryRow) bool) {
		for r := range s.t.history.from(historyKey{user: user, stem: stem, gpus: gpus}) {
			if r.User != user || r.Stem != stem || r.GPUs != gpus || !yield(r) {
				return
			}
		}
	}
}

// Everybodys yields how long jobs ran by their number of GPUs, of all users and names together.
func (s *Snapshot) Everybodys() iter.Seq[*HistoryRow] {
	return func(yield func(*HistoryRow) bool) {
		for r := range s.t.history.all() {
			if r.User != "" || r.Stem != "" || !yield(r) {
				return
			}
		}
	}
}

// Queues yields the queues by name.
func (s *Snapshot) Queues() iter.Seq[*muster.Queue] { return s.t.queues.all() }

func found[R any](row *R) (*R, bool) { return row, row != nil }

// Row is one row of any table: *Cluster, *muster.Job, *SpecRow, *ShapeRow, *muster.Allocation, *muster.Node, *muster.Queue,
// *RequestRow, *Event, *HoldRow, *UsageRow, *HistoryRow.
type Row any

// Rows yields every row, table by table in a fixed order, each in key order: the content of a snapshot file.
func (s *Snapshot) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		cluster := s.t.cluster
		_ = yield(&cluster) && each(&s.t.queues, yield) && each(&s.t.nodes, yield) && each(&s.t.shapes, yield) &&
			each(&s.t.specs, yield) && each(&s.t.jobs, yield) && each(&s.t.allocs, yield) && each(&s.t.requests, yield) &&
			each(&s.t.holds, yield) && each(&s.t.usage, yield) && each(&s.t.history, yield) &&
			s.eachEvent(yield)
	}
}

func (s *Snapshot) eachEvent(yield func(Row) bool) bool {
	for event := range s.Events(0, 0) {
		if !yield(event) {
			return false
		}
	}
	return true
}

// each yields the rows of a table, and says whether more are wanted.
func each[K, R any](t *table[K, R], yield func(Row) bool) bool {
	for row := range t.all() {
		if !yield(row) {
			return false
		}
	}
	return true
}
