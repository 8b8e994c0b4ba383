// Package state is the replicated state: tables, commands, immutable snapshots, invariants. No raft, no clock, no
// randomness, no float, no I/O: two servers that apply the same entries hold the same rows and the same digest.
package state

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster"
)

// State is the writer's side. One goroutine applies; readers hold Snapshots.
type State struct {
	t tables
	w work

	index   muster.Index
	term    uint64
	cluster uint64 // hash of the cluster's row
	marks   digestLog
	events  eventLog

	touched []touchedJob // by the command at work, with where they stood before it
	changed Changed      // by the entry at work

	// Derived, for the writer only.
	shapeOf  map[[16]byte]muster.ShapeID // live shapes by content
	feasible map[[16]byte]bool           // shapes by content that the nodes as they are could hold
	expiry   index[expiryKey]            // of remembered requests; never frozen, so that writing it copies nothing
	prepared preparation
}

// work counts entries and commands, so that rows know who made them, and sums the digest of the rows.
type work struct {
	entry   uint64
	command uint64
	digest  uint64
	enc     encoder
}

type touchedJob struct {
	id  muster.JobID
	was standing
}

// New gives an empty state.
func New() *State {
	s := &State{t: newTables(), shapeOf: map[[16]byte]muster.ShapeID{}, feasible: map[[16]byte]bool{}, expiry: newIndex(expiryKey.less)}
	s.t.cluster = Cluster{Epoch: 1, Level: 1, NextJob: 1, NextAlloc: 1, NextNode: 1, NextShape: 1}
	s.w.entry, s.w.command = 1, 1
	s.t.queues.insert(muster.DefaultQueue, muster.Queue{Name: muster.DefaultQueue}, &s.w)
	s.seal()
	return s
}

// now is the state's time: that of the entry at work.
func (s *State) now() muster.Time { return s.t.cluster.Time }

// Apply applies one log entry and gives a result for each of its commands. The rows of earlier snapshots are left alone.
func (s *State) Apply(e Entry, index muster.Index, term uint64) ([]Result, Changed) {
	s.marks.pass(s.index, index, s.digest())
	s.index, s.term = index, term
	s.w.entry++
	s.t.cluster.Time = max(s.t.cluster.Time, e.Stamp)
	s.forget(expiryBatch + 2*len(e.Commands))
	s.beginUsage()
	results := make([]Result, len(e.Commands))
	for i, c := range e.Commands {
		s.w.command++
		results[i] = s.one(c)
		s.settleIndexes()
	}
	s.seal()
	return results, s.takeChanged()
}

// duty is a command that the leader decided, in a term.
type duty interface{ decidedIn() uint64 }

func (s *State) one(c Command) Result {
	if c == nil {
		return Result{Err: muster.Errorf(muster.KindInvalid, "an empty command")}
	}
	if d, ok := c.(duty); ok && d.decidedIn() != s.term {
		return Result{Err: muster.Errorf(muster.KindConflict, "decided in term %d, but term %d has begun: another server leads",
			d.decidedIn(), s.term)}
	}
	var content [16]byte
	r, ok := c.(request)
	remember := ok && r.header().RequestID != ""
	if remember {
		content = s.requestContent(r)
		if earlier, ok := s.recall(r.header().RequestID, content); ok {
			return earlier
		}
	}
	if err := c.check(s); err != nil {
		return Result{Err: err}
	}
	result := c.apply(s)
	if remember {
		s.remember(r.header().RequestID, content, result)
	}
	return result
}

// seal brings the digest up to date with the entry at work.
func (s *State) seal() {
	s.t.queues.seal(&s.w)
	s.t.nodes.seal(&s.w)
	s.t.shapes.seal(&s.w)
	s.t.specs.seal(&s.w)
	s.t.jobs.seal(&s.w)
	s.t.allocs.seal(&s.w)
	s.t.requests.seal(&s.w)
	s.t.holds.seal(&s.w)
	s.t.usage.seal(&s.w)
	s.t.history.seal(&s.w)
	s.cluster = s.w.enc.clusterHash(&s.t.cluster)
}

func (s *State) digest() uint64 { return s.w.digest + s.cluster }

// Snapshot freezes the state as it is after the last Apply. Called by the writer only, once per entry; what it returns may
// be read by anyone for ever.
func (s *State) Snapshot() *Snapshot {
	return &Snapshot{t: s.t.freeze(), index: s.index, digest: s.digest(), marks: s.marks, events: s.events}
}

// job gives a job's row to be changed in place, or nil. Its indexes follow when the command is done.
func (s *State) job(id muster.JobID) *muster.Job {
	before := s.t.jobs.get(id)
	if before == nil {
		return nil
	}
	// The row of an earlier command of this entry would be edited in place: where the job stands is taken first.
	was := standingOf(before)
	j, first := s.t.jobs.edit(id, &s.w)
	if first {
		s.touched = append(s.touched, touchedJob{id, was})
	}
	return j
}

// settleIndexes brings indexes, interned rows and queues up to date with the jobs that the command at work touched.
func (s *State) settleIndexes() {
	for _, touched := range s.touched {
		j := s.t.jobs.get(touched.id)
		is := standingOf(j)
		s.restand(touched.id, touched.was, is)
		if !is.isPending {
			s.unhold(touched.id)
		}
		s.changed.Jobs = append(s.changed.Jobs, touched.id)
	}
	s.touched = s.touched[:0]
}

func (s *State) restand(id muster.JobID, was, is standing) {
	s.t.reindex(id, was, is)
	if was.waits != is.waits || was.placed != is.placed {
		q := s.queue(cmp.Or(was.pending.Queue, is.pending.Queue))
		q.Pending += delta(was.waits, is.waits)
		q.Running += delta(was.placed, is.placed)
	}
	if wasLive, isLive := was.exists && !was.isEnded, is.exists && !is.isEnded; wasLive && !isLive {
		s.releaseShape(was.pending.Shape)
	}
}

func delta(was, is bool) int {
	switch {
	case is && !was:
		return 1
	case was && !is:
		return -1
	}
	return 0
}

// alloc gives an allocation's row to be changed in place, or nil. Its node and job count as changed: who watches them is told.
func (s *State) alloc(id muster.AllocID) *muster.Allocation {
	a, first := s.t.allocs.edit(id, &s.w)
	if a != nil && first {
		s.changed.Nodes = append(s.changed.Nodes, a.Node)
		s.changed.Jobs = append(s.changed.Jobs, a.Job)
	}
	return a
}

func (s *State) node(id muster.NodeID) *muster.Node {
	n, first := s.t.nodes.edit(id, &s.w)
	if first {
		s.changed.Nodes = append(s.changed.Nodes, id)
	}
	return n
}

// queue gives the row of a queue that exists.
func (s *State) queue(name string) *muster.Queue {
	q, first := s.t.queues.edit(name, &s.w)
	if first {
		s.changed.Queues = append(s.changed.Queues, name)
	}
	return q
}

func (s *State) takeChanged() Changed {
	c := s.changed
	s.changed = Changed{}
	c.Jobs = sortedSet(c.Jobs)
	c.Nodes = sortedSet(c.Nodes)
	c.Queues = sortedSet(c.Queues)
	return c
}

func sortedSet[T cmp.Ordered](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

// digestEvery is the distance of the log positions whose digest is kept, digestsKept how many are.
const (
	digestEvery = 1000
	digestsKept = 1024
)

// digestLog keeps digests at round log positions. It is copied with snapshots: what it holds is only added to.
type digestLog struct{ marks []digestMark }

type digestMark struct {
	index  muster.Index
	digest uint64
}

// pass keeps the digest that held from the log position old until just before new.
func (l *digestLog) pass(old, new muster.Index, digest uint64) {
	if new <= old {
		return
	}
	round := (new - 1) / digestEvery * digestEvery
	if round < old || round == 0 || len(l.marks) > 0 && l.marks[len(l.marks)-1].index == round {
		return
	}
	if len(l.marks) >= digestsKept {
		l.marks = slices.Clone(l.marks[digestsKept/2:])
	}
	l.marks = append(l.marks, digestMark{round, digest})
}

func (l *digestLog) at(index muster.Index) (uint64, bool) {
	i, ok := slices.BinarySearchFunc(l.marks, index, func(m digestMark, index muster.Index) int { return cmp.Compare(m.index, index) })
	if !ok {
		return 0, false
	}
	return l.marks[i].digest, true
}

// DigestAt gives the digest as of a log position: the last one applied, or a multiple of 1,000 that this process has passed.
func (s *State) DigestAt(index muster.Index) (uint64, bool) {
	if index == s.index {
		return s.digest(), true
	}
	return s.marks.at(index)
}
