package state

import (
	"fmt"
	"iter"

	"github.com/musterhpc/muster"
)

// Restore builds a state from the rows of a snapshot at index; it refuses rows that do not fit together.
func Restore(index muster.Index, rows iter.Seq2[Row, error]) (*State, error) {
	s := New()
	s.t = newTables()
	s.w.digest = 0
	s.index = index
	clusters := 0
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		if c, ok := row.(*Cluster); ok && c != nil {
			clusters++
			s.t.cluster = *c
			continue
		}
		if err := s.load(row); err != nil {
			return nil, fmt.Errorf("snapshot at index %d: %w", index, err)
		}
	}
	if clusters != 1 {
		return nil, fmt.Errorf("snapshot at index %d: %d rows of the cluster, want one", index, clusters)
	}
	if err := s.t.refer(); err != nil {
		return nil, fmt.Errorf("snapshot at index %d: %w", index, err)
	}
	s.derive()
	s.seal()
	if err := s.Snapshot().CheckInvariants(); err != nil {
		return nil, fmt.Errorf("snapshot at index %d: %w", index, err)
	}
	return s, nil
}

// load adds a row to its table.
func (s *State) load(row Row) error {
	switch r := row.(type) {
	case *muster.Queue:
		return load(s, &s.t.queues, r, func(r *muster.Queue) string { return r.Name })
	case *muster.Node:
		return load(s, &s.t.nodes, r, func(r *muster.Node) muster.NodeID { return r.ID })
	case *ShapeRow:
		return load(s, &s.t.shapes, r, func(r *ShapeRow) muster.ShapeID { return r.ID })
	case *SpecRow:
		return load(s, &s.t.specs, r, func(r *SpecRow) muster.SpecID { return r.ID })
	case *muster.Job:
		return load(s, &s.t.jobs, r, func(r *muster.Job) muster.JobID { return r.ID })
	case *muster.Allocation:
		return load(s, &s.t.allocs, r, func(r *muster.Allocation) muster.AllocID { return r.ID })
	case *HoldRow:
		return load(s, &s.t.holds, r, func(r *HoldRow) muster.JobID { return r.Job })
	case *UsageRow:
		return load(s, &s.t.usage, r, func(r *UsageRow) usageKey { return usageKey{r.Queue, r.User} })
	case *HistoryRow:
		return load(s, &s.t.history, r, func(r *HistoryRow) historyKey { return historyKey{r.User, r.Stem, r.GPUs, r.Model} })
	case *RequestRow:
		return load(s, &s.t.requests, r, func(r *RequestRow) string { return r.ID })
	case *Event:
		return s.events.load(r)
	}
	return fmt.Errorf("a row of the unknown type %T", row)
}

func load[K, R any](s *State, t *table[K, R], row *R, keyOf func(*R) K) error {
	if row == nil {
		return fmt.Errorf("an empty row of %T", row)
	}
	key := keyOf(row)
	if t.get(key) != nil {
		return fmt.Errorf("two rows of %T with the key %v", row, key)
	}
	t.insert(key, *row, &s.w)
	return nil
}

// refer checks that what rows refer to is there, so that everything after may follow references.
func (t *tables) refer() error {
	for r := range t.shapes.all() {
		if r.Shape == nil {
			return fmt.Errorf("shape %d is empty", r.ID)
		}
	}
	for r := range t.specs.all() {
		if r.Spec == nil || len(r.Spec.Groups) == 0 {
			return fmt.Errorf("spec %x is empty", r.ID)
		}
	}
	for j := range t.jobs.all() {
		switch {
		case t.specs.get(j.Spec) == nil:
			return fmt.Errorf("job %d: its spec %x is missing", j.ID, j.Spec)
		case !j.Phase.Terminal() && t.shapes.get(j.Shape) == nil:
			return fmt.Errorf("job %d: its shape %d is missing", j.ID, j.Shape)
		case !j.Phase.Terminal() && t.queues.get(j.Queue) == nil:
			return fmt.Errorf("job %d: its queue %q is missing", j.ID, j.Queue)
		case int64(j.Attempt) != int64(len(j.Attempts)):
			return fmt.Errorf("job %d: %d attempts are described, want %d", j.ID, len(j.Attempts), j.Attempt)
		}
	}
	for a := range t.allocs.all() {
		j, n := t.jobs.get(a.Job), t.nodes.get(a.Node)
		switch {
		case j == nil:
			return fmt.Errorf("allocation %s: its job %d is missing", a.ID, a.Job)
		case n == nil:
			return fmt.Errorf("allocation %s: its node %d is missing", a.ID, a.Node)
		case a.Attempt < 1 || a.Attempt > j.Attempt || a.Phase != muster.AllocEnded && a.Attempt != j.Attempt:
			return fmt.Errorf("allocation %s: attempt %d of job %d is not its newest, %d", a.ID, a.Attempt, j.ID, j.Attempt)
		case a.Group < 0 || a.Group >= len(t.specs.get(j.Spec).Spec.Groups):
			return fmt.Errorf("allocation %s: job %d has no group %d", a.ID, j.ID, a.Group)
		case a.Slots.Minus(muster.SlotRange(len(n.GPUs))) != 0:
			return fmt.Errorf("allocation %s: %s has no GPU slots %s", a.ID, n.Name, a.Slots.Minus(muster.SlotRange(len(n.GPUs))))
		case a.Share != 0 && (a.Share < 1 || a.Share > muster.WholeGPU || a.Slots.Count() != 1):
			return fmt.Errorf("allocation %s: a share of %d of the slots %s", a.ID, a.Share, a.Slots)
		}
	}
	return nil
}

// derive builds the indexes from the rows.
func (s *State) derive() {
	for n := range s.t.nodes.all() {
		s.t.nodeNames.add(nodeNameKey{n.Name, n.ID})
		for slot := range n.GPUs {
			s.t.gpus.add(gpuKey{n.GPUs[slot].UUID, n.ID, slot})
		}
	}
	for j := range s.t.jobs.all() {
		s.t.reindex(j.ID, standing{}, standingOf(j))
	}
	for a := range s.t.allocs.all() {
		s.t.jobAllocs.add(jobAllocKey{a.Job, a.Attempt, a.ID})
		if a.Phase != muster.AllocEnded {
			s.t.nodeAllocs.add(nodeAllocKey{a.Node, a.ID})
		}
	}
	for h := range s.t.holds.all() {
		s.t.indexHold(h)
	}
	for r := range s.t.requests.all() {
		s.expiry.add(expiryKey{r.Expires, r.ID})
	}
	for r := range s.t.shapes.all() {
		s.shapeOf[s.w.enc.shapeKey(r.Shape)] = r.ID
	}
}
