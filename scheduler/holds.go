package scheduler

import (
	"time"

	"github.com/musterhpc/muster/fsm/state"
)

// held is what is kept for a job that waits.
type held struct {
	row   *state.HoldRow
	takes []take // as they were applied: slots that were free
}

// maxHold is for how long places are held for a job at most.
const maxHold = time.Hour

// holdPlaces takes what is held out of what is free.
func (a *agenda) holdPlaces() {
	for row := range a.v.snapshot.Holds() {
		h := held{row: row, takes: a.v.takesOf(row.Ranks)}
		for i := range h.takes {
			t := &h.takes[i]
			a.kept[t.node] |= t.slots
			t.slots &= a.v.nodes[t.node].free
			a.change(t, 1)
		}
		a.holds = append(a.holds, h)
	}
}

// tryHeld starts a job for which places are held as soon as its victims have left them, there or anywhere.
func (a *agenda) tryHeld(h head) verdict {
	at := -1
	for i := range a.holds {
		if a.holds[i].row.Job == h.job {
			at = i
		}
	}
	job, ok := a.v.snapshot.Job(h.job)
	if at < 0 || !ok {
		return jobDone
	}
	hold := &a.holds[at]
	a.setLevel(0)
	whole := a.v.takesOf(hold.row.Ranks)
	for i := range hold.takes {
		a.kept[hold.takes[i].node] &^= whole[i].slots
		a.change(&hold.takes[i], -1)
	}
	b := h.bucket
	if a.atLimit(b) { // lowered, or reached by others, since
		hold.takes = nil
		a.plan.Unhold = append(a.plan.Unhold, h.job)
		return jobDone
	}
	if placed, ok := a.gang(b.shape, job, a.mayBeWide(b.shape, job.ID, a.now)); ok {
		hold.takes = nil
		lasts := a.expected(b.key.user.name, b.key.kin, b.shape.gpuMilli, b.key.limit, b.past.done)
		a.start(b, job, placed, a.now.Add(lasts))
		return jobDone
	}
	if a.useless(hold) {
		hold.takes = nil
		a.plan.Unhold = append(a.plan.Unhold, h.job)
		return jobDone
	}
	for i := range hold.takes {
		a.kept[hold.takes[i].node] |= whole[i].slots
		a.change(&hold.takes[i], 1)
	}
	return jobDone
}

// useless says whether a hold leads nowhere: its nodes no longer do, nobody is about to leave them, or it has lasted too long.
func (a *agenda) useless(h *held) bool {
	if a.now.Sub(h.row.Since) > maxHold {
		return true
	}
	for i := range h.row.Ranks {
		r := &h.row.Ranks[i]
		at, ok := a.v.find(r.Node)
		if !ok || !a.v.nodes[at].placeable || r.Slots.Minus(a.v.nodes[at].usable) != 0 || a.out.has(at) {
			return true
		}
	}
	for _, r := range a.v.running {
		if !r.stopping() {
			continue
		}
		for _, holding := range r.holds {
			for i := range h.row.Ranks {
				if a.v.nodes[holding.node].row.ID == h.row.Ranks[i].Node {
					return false
				}
			}
		}
	}
	return true
}
