package state

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/musterhpc/muster"
)

// CheckInvariants recomputes every derived counter and index and says the first thing that does not fit.
func (s *Snapshot) CheckInvariants() error {
	t := &s.t
	checks := []func() error{
		t.refer, t.checkNumbers, t.checkNodes, t.checkAttempts, t.checkQueues, t.checkInterned, t.checkHolds, t.checkUsage, t.checkIndexes, s.checkDigest,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkNumbers: no number was given that could be given again.
func (t *tables) checkNumbers() error {
	c := &t.cluster
	if c.Epoch < 1 || c.NextJob < 1 || c.NextAlloc < 1 || c.NextNode < 1 || c.NextShape < 1 {
		return fmt.Errorf("cluster: a counter is zero: %+v", *c)
	}
	for j := range t.jobs.all() {
		if j.ID >= c.NextJob || j.ID == 0 {
			return fmt.Errorf("job %d is not below the next number, %d", j.ID, c.NextJob)
		}
	}
	for a := range t.allocs.all() {
		next := muster.AllocID{Epoch: c.Epoch, Counter: c.NextAlloc}
		if !a.ID.Less(next) || a.ID.Counter == 0 {
			return fmt.Errorf("allocation %s is not below the next number, %s", a.ID, next)
		}
	}
	for n := range t.nodes.all() {
		if n.ID >= c.NextNode || n.ID == 0 {
			return fmt.Errorf("node %d is not below the next number, %d", n.ID, c.NextNode)
		}
	}
	for r := range t.shapes.all() {
		if r.ID >= c.NextShape || r.ID == 0 {
			return fmt.Errorf("shape %d is not below the next number, %d", r.ID, c.NextShape)
		}
	}
	return nil
}

// checkNodes: a slot is in one live allocation at most, and what is free is what no live allocation holds.
func (t *tables) checkNodes() error {
	for n := range t.nodes.all() {
		if len(n.GPUs) > muster.MaxSlots {
			return fmt.Errorf("node %s: %d GPU slots", n.Name, len(n.GPUs))
		}
		if named := t.nodeNamed(n.Name); named == nil || named.ID != n.ID {
			return fmt.Errorf("node %d: its name %s is not its own", n.ID, n.Name)
		}
		var held muster.SlotSet // whole
		var shared []muster.SlotShare
		var cores muster.MilliCores
		var memory muster.Bytes
		live, whole := 0, false
		for _, id := range t.liveOn(n.ID) {
			a := t.allocs.get(id)
			if a == nil {
				return fmt.Errorf("node %s: its allocation %s is missing", n.Name, id)
			}
			if both := a.Slots & held; both != 0 {
				return fmt.Errorf("node %s: GPU slots %s are in two live allocations, one is %s", n.Name, both, id)
			}
			if a.Share > 0 {
				slot := a.Slots.Slots()[0]
				if shared = muster.AddShare(shared, slot, a.Share); muster.HeldShare(shared, slot) > muster.WholeGPU {
					return fmt.Errorf("node %s: shares of GPU slot %d come to more than all of it", n.Name, slot)
				}
			} else {
				held |= a.Slots
			}
			cores += a.MilliCores
			memory += a.Memory
			live++
			whole = whole || t.specs.get(t.jobs.get(a.Job).Spec).Spec.Groups[a.Group].Task.Resources.Exclusive
		}
		if whole && live > 1 {
			return fmt.Errorf("node %s: %d live allocations, one of which has it alone", n.Name, live)
		}
		free := n.UsableSlots().Minus(held)
		for _, s := range shared {
			if held.Has(s.Slot) {
				return fmt.Errorf("node %s: GPU slot %d is held whole and in shares", n.Name, s.Slot)
			}
			free = free.Minus(muster.SlotSet(0).With(s.Slot))
		}
		if !slices.Equal(n.Shared, shared) {
			return fmt.Errorf("node %s: shares held %v; a recount gives %v", n.Name, n.Shared, shared)
		}
		if n.FreeSlots != free || n.FreeMilliCores != n.MilliCores-cores || n.FreeMemory != n.Memory-memory || n.Allocs != live {
			return fmt.Errorf("node %s: free slots [%s], cores %s, memory %s, %d live; a recount gives [%s], %s, %s, %d", n.Name,
				n.FreeSlots, n.FreeMilliCores, n.FreeMemory, n.Allocs, free, n.MilliCores-cores, n.Memory-memory, live)
		}
	}
	return nil
}

// checkAttempts: a gang holds all or none, and an attempt's counters are those of its allocations.
func (t *tables) checkAttempts() error {
	for j := range t.jobs.all() {
		if j.Phase == muster.JobPhaseUnknown || j.Phase > muster.JobCancelled {
			return fmt.Errorf("job %d: phase %d", j.ID, j.Phase)
		}
		ranks := t.specs.get(j.Spec).Spec.Ranks()
		for i := range j.Attempts {
			at := &j.Attempts[i]
			var have muster.Attempt
			count := 0
			for _, id := range t.allocsOf(j.ID, uint32(i+1)) {
				a := t.allocs.get(id)
				if a == nil {
					return fmt.Errorf("job %d: its allocation %s is missing", j.ID, id)
				}
				have.Live += delta(false, a.Phase < muster.AllocEnded)
				have.Unready += delta(false, a.Phase < muster.AllocReady)
				have.Waiting += delta(false, a.Phase < muster.AllocRunning)
				count++
			}
			alive := j.Phase.Placed() && i == len(j.Attempts)-1
			switch {
			case at.Number != uint32(i+1):
				return fmt.Errorf("job %d: attempt %d stands at place %d", j.ID, at.Number, i+1)
			case count != ranks:
				return fmt.Errorf("job %d: attempt %d has %d allocations for %d ranks", j.ID, at.Number, count, ranks)
			case at.Live != have.Live || at.Unready != have.Unready || at.Waiting != have.Waiting:
				return fmt.Errorf("job %d: attempt %d counts %d live, %d unready, %d waiting; a recount gives %d, %d, %d", j.ID, at.Number,
					at.Live, at.Unready, at.Waiting, have.Live, have.Unready, have.Waiting)
			case alive != (at.Live > 0):
				return fmt.Errorf("job %d is %s, but its attempt %d has %d live allocations", j.ID, j.Phase, at.Number, at.Live)
			}
		}
		if j.Phase.Placed() && len(j.Attempts) == 0 {
			return fmt.Errorf("job %d is %s, but was never placed", j.ID, j.Phase)
		}
	}
	return nil
}

func (t *tables) checkQueues() error {
	have := map[string]*muster.Queue{}
	for q := range t.queues.all() {
		have[q.Name] = &muster.Queue{Name: q.Name}
	}
	for j := range t.jobs.all() {
		is := standingOf(j)
		if q := have[j.Queue]; q != nil { // what has ended may be of a queue that is gone
			q.Pending += delta(false, is.waits)
			q.Running += delta(false, is.placed)
		}
	}
	for a := range t.allocs.all() {
		if a.Phase != muster.AllocEnded {
			have[t.jobs.get(a.Job).Queue].Hold(a, 1)
		}
	}
	for q := range t.queues.all() {
		if q.Pending != have[q.Name].Pending || q.Running != have[q.Name].Running || q.GPUs != have[q.Name].GPUs {
			return fmt.Errorf("queue %s counts %+v; a recount gives %+v", q.Name, *q, *have[q.Name])
		}
	}
	return nil
}

// checkInterned: specs and shapes are what their keys say, and counted.
func (t *tables) checkInterned() error {
	var enc encoder
	specs, shapes := map[muster.SpecID]int{}, map[muster.ShapeID]int{}
	for j := range t.jobs.all() {
		specs[j.Spec]++
		if !j.Phase.Terminal() {
			shapes[j.Shape]++
			of := muster.ShapeIn(t.specs.get(j.Spec).Spec, t.queues.get(j.Queue).Rules())
			if enc.shapeKey(&of) != enc.shapeKey(t.shapes.get(j.Shape).Shape) {
				return fmt.Errorf("job %d: shape %d is not that of its spec", j.ID, j.Shape)
			}
		}
	}
	for r := range t.specs.all() {
		if r.Jobs != specs[r.ID] || r.Jobs == 0 {
			return fmt.Errorf("spec %x counts %d jobs; a recount gives %d", r.ID, r.Jobs, specs[r.ID])
		}
		if enc.specID(r.Spec) != r.ID {
			return fmt.Errorf("spec %x is not the hash of its content", r.ID)
		}
	}
	contents := map[[16]byte]muster.ShapeID{}
	for r := range t.shapes.all() {
		if r.Jobs != shapes[r.ID] || r.Jobs == 0 {
			return fmt.Errorf("shape %d counts %d live jobs; a recount gives %d", r.ID, r.Jobs, shapes[r.ID])
		}
		key := enc.shapeKey(r.Shape)
		if other, ok := contents[key]; ok {
			return fmt.Errorf("shapes %d and %d are equal", other, r.ID)
		}
		contents[key] = r.ID
	}
	return nil
}

// checkIndexes compares each index with one derived from the rows.
func (t *tables) checkIndexes() error {
	fresh := New()
	own := fresh.t
	fresh.t = *t
	fresh.t.pending, fresh.t.backingOff, fresh.t.ended, fresh.t.names = own.pending, own.backingOff, own.ended, own.names
	fresh.t.starts = own.starts
	fresh.t.jobAllocs, fresh.t.nodeAllocs, fresh.t.nodeNames = own.jobAllocs, own.nodeAllocs, own.nodeNames
	fresh.t.gpus, fresh.t.nodeHolds = own.gpus, own.nodeHolds
	fresh.derive()
	f := &fresh.t
	return errors.Join(
		sameKeys("pending", t.pending.all(), f.pending),
		sameKeys("backing off", t.backingOff.all(), f.backingOff),
		sameKeys("ended", t.ended.all(), f.ended),
		sameKeys("starts", t.starts.all(), f.starts),
		sameKeys("names", t.names.all(), f.names),
		sameKeys("allocations of jobs", t.jobAllocs.all(), f.jobAllocs),
		sameKeys("allocations of nodes", t.nodeAllocs.all(), f.nodeAllocs),
		sameKeys("names of nodes", t.nodeNames.all(), f.nodeNames),
		sameKeys("GPUs", t.gpus.all(), f.gpus),
		sameKeys("nodes of holds", t.nodeHolds.all(), f.nodeHolds),
	)
}

func sameKeys[K comparable](name string, have iter.Seq[K], want index[K]) error {
	count := 0
	for k := range have {
		if !want.tree.Has(k) {
			return fmt.Errorf("index %s: %+v has no row", name, k)
		}
		count++
	}
	if count != want.tree.Len() {
		return fmt.Errorf("index %s has %d keys; the rows give %d", name, count, want.tree.Len())
	}
	return nil
}

func (s *Snapshot) checkDigest() error {
	var enc encoder
	t := &s.t
	sum := enc.clusterHash(&t.cluster) + sumHashes(&enc, &t.queues) + sumHashes(&enc, &t.nodes) + sumHashes(&enc, &t.shapes) +
		sumHashes(&enc, &t.specs) + sumHashes(&enc, &t.jobs) + sumHashes(&enc, &t.allocs) + sumHashes(&enc, &t.requests) +
		sumHashes(&enc, &t.holds) + sumHashes(&enc, &t.usage) + sumHashes(&enc, &t.history)
	if sum != s.digest {
		return fmt.Errorf("digest %016x; the rows give %016x", s.digest, sum)
	}
	return nil
}

func sumHashes[K, R any](enc *encoder, t *table[K, R]) uint64 {
	var sum uint64
	for row := range t.all() {
		sum += rowHash(enc, t.write, row)
	}
	return sum
}
