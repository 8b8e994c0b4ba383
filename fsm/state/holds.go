package state

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster"
)

// HoldRow keeps places for a job that waits: what its victims leave there, and what is free of it already, goes to nobody else.
// It goes when the job is placed, anywhere, or no longer waits.
type HoldRow struct {
	Job     muster.JobID
	Attempt uint32 // that is to start there
	Since   muster.Time
	Ranks   []RankPlacement
	Victims []muster.JobID // that were stopped for it
}

// Eviction stops jobs so that another one may start, and holds what they leave for it. The ranks may stand where victims are,
// or others that are stopping already.
type Eviction struct {
	Job     muster.JobID
	Attempt uint32 // the job's newest attempt + 1, else refused
	Ranks   []RankPlacement
	Victims []Victim
}

// Victim is a placed job that is asked to save itself and to end (class preempted). It goes back to its old place.
type Victim struct {
	Job     muster.JobID
	Attempt uint32 // its newest, else refused
	Reason  string // one sentence for people
}

// QueueClaim is what a queue's own cluster, as large as its quota, would run now of its jobs.
type QueueClaim struct {
	Queue string
	GPUs  int
}

// holdKey is a node of a hold.
type holdKey struct {
	node muster.NodeID
	job  muster.JobID
}

func (k holdKey) less(o holdKey) bool {
	if k.node != o.node {
		return k.node < o.node
	}
	return k.job < o.job
}

func (t *tables) indexHold(h *HoldRow) {
	for i := range h.Ranks {
		t.nodeHolds.add(holdKey{h.Ranks[i].Node, h.Job})
	}
}

// unhold gives up what is held for a job, if anything is.
func (s *State) unhold(id muster.JobID) {
	h := s.t.holds.get(id)
	if h == nil {
		return
	}
	for i := range h.Ranks {
		s.t.nodeHolds.drop(holdKey{h.Ranks[i].Node, id})
	}
	s.t.holds.remove(id, &s.w)
	s.changed.Jobs = append(s.changed.Jobs, id)
}

// withoutHeld takes what is held on a node for others than the given job off what is left of it. Cores and memory that a hold's
// victims still have are taken off all the same, so this may come out short for as long as they take to end, never too long.
func (t *tables) withoutHeld(r *room, job muster.JobID) {
	for k := range t.nodeHolds.from(holdKey{node: r.node.ID}) {
		if k.node != r.node.ID {
			return
		}
		if k.job == job {
			continue
		}
		h := t.holds.get(k.job)
		for i := range h.Ranks {
			if held := &h.Ranks[i]; held.Node == r.node.ID {
				if held.Share > 0 {
					r.holdShare(held.Slots, held.Share)
				} else {
					r.slots = r.slots.Minus(held.Slots)
					r.shared = slices.DeleteFunc(slices.Clone(r.shared), func(s muster.SlotShare) bool { return held.Slots.Has(s.Slot) })
				}
				r.cores -= held.MilliCores
				r.memory -= held.Memory
				r.allocs++
			}
		}
	}
}

// holdShare takes a share off, unless the GPU is not shared at present: then nobody gets any of it anyway.
func (f *room) holdShare(slots muster.SlotSet, share muster.MilliGPUs) {
	slot := slots.Slots()[0]
	if f.slots.Has(slot) || muster.HeldShare(f.shared, slot) > 0 {
		f.slots = f.slots.Minus(slots)
		f.shared = muster.AddShare(f.shared, slot, share)
	}
}

// withStopping adds what allocations on a node hold that are on their way out: of jobs that are stopping, and of victims.
func (t *tables) withStopping(r *room, victims []Victim) {
	usable := r.node.UsableSlots()
	for _, id := range t.liveOn(r.node.ID) {
		a := t.allocs.get(id)
		out := t.jobs.get(a.Job).Phase == muster.JobStopping ||
			slices.ContainsFunc(victims, func(v Victim) bool { return v.Job == a.Job })
		if out {
			if a.Share > 0 {
				slot := a.Slots.Slots()[0]
				if r.shared = muster.AddShare(r.shared, slot, -a.Share); muster.HeldShare(r.shared, slot) == 0 {
					r.slots |= a.Slots & usable
				}
			} else {
				r.slots |= a.Slots & usable
			}
			r.cores += a.MilliCores
			r.memory += a.Memory
			r.allocs--
		}
	}
}

// evict stops an eviction's victims and holds what they leave, or says why not and changes nothing.
func (s *State) evict(e *Eviction, p *placement) string {
	for i := range e.Victims {
		v := &e.Victims[i]
		j := s.t.jobs.get(v.Job)
		switch {
		case j == nil:
			return fmt.Sprintf("the victim %d is not known", v.Job)
		case j.ID == e.Job:
			return "a job can't make room for itself"
		case j.Phase != muster.JobPreparing && j.Phase != muster.JobRunning:
			return fmt.Sprintf("the victim %d is %s", v.Job, j.Phase)
		case j.Attempt != v.Attempt:
			return fmt.Sprintf("attempt %d of the victim %d was to be stopped, but %d runs", v.Attempt, v.Job, j.Attempt)
		}
	}
	p.stopping, p.victims = true, e.Victims
	reason := p.judge(s, &GangPlacement{Job: e.Job, Attempt: e.Attempt, Ranks: e.Ranks})
	p.stopping, p.victims = false, nil
	if reason != "" {
		return reason
	}
	s.unhold(e.Job)
	h := HoldRow{Job: e.Job, Attempt: e.Attempt, Since: s.now(), Ranks: e.Ranks}
	for i := range e.Victims {
		v := &e.Victims[i]
		h.Victims = append(h.Victims, v.Job)
		s.stop(s.job(v.Job), muster.Stop{Mode: muster.StopSave, Class: muster.ClassPreempted, Reason: v.Reason, At: s.now()})
	}
	s.t.indexHold(s.t.holds.insert(e.Job, h, &s.w))
	s.changed.Jobs = append(s.changed.Jobs, e.Job)
	return ""
}

// checkHolds: what is held is held for jobs that wait, on nodes that are known, and nothing twice.
func (t *tables) checkHolds() error {
	held := map[muster.NodeID]muster.SlotSet{}
	shares := map[muster.NodeID][]muster.SlotShare{}
	for h := range t.holds.all() {
		if j := t.jobs.get(h.Job); j == nil || !standingOf(j).isPending {
			return fmt.Errorf("places are held for job %d, which does not wait", h.Job)
		}
		for i := range h.Ranks {
			r := &h.Ranks[i]
			if t.nodes.get(r.Node) == nil {
				return fmt.Errorf("the hold for job %d: node %d is missing", h.Job, r.Node)
			}
			if twice := held[r.Node] & r.Slots; twice != 0 {
				return fmt.Errorf("the hold for job %d: slots %s of node %d are held twice", h.Job, twice, r.Node)
			}
			if r.Share > 0 && r.Slots.Count() == 1 {
				slot := r.Slots.Slots()[0]
				shares[r.Node] = muster.AddShare(shares[r.Node], slot, r.Share)
				if muster.HeldShare(shares[r.Node], slot) > muster.WholeGPU {
					return fmt.Errorf("the hold for job %d: more than all of GPU slot %d of node %d is held", h.Job, slot, r.Node)
				}
				continue
			}
			held[r.Node] |= r.Slots
		}
	}
	return nil
}
