package step

import (
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/exec"
)

// task is what the agent knows of one allocation.
type task struct {
	id         muster.AllocID
	assignment *Assignment // nil: re-adopted, and no view has named it yet
	broken     string      // why its assignment can't be run by this program
	gone       bool        // the state has it as ended, or doesn't know it

	phase      muster.AllocPhase
	end        muster.AllocReport // when phase is AllocEnded, or as far as it is known
	supervised bool               // the supervisor knows it
	intent     bool               // that it may be started is on the disk
	forked     bool               // its start was ordered: never again
	asked      muster.StopMode    // the strongest stop that the supervisor has taken
	own        muster.Stop        // what the agent itself wants
	busy       bool               // an action is under way
	killing    bool               // it is being killed past a silent supervisor
	intending  bool               // that it may be started is on its way to the disk
	named      time.Time          // when a renewal last named it
	retryAt    time.Time          // when what failed is tried again; zero = nothing is

	acked muster.AllocPhase // the phase that the servers have
}

func (t *task) lease() time.Duration {
	if t.assignment == nil {
		return 0
	}
	return t.assignment.Alloc.Lease
}

func (t *task) desired() desired {
	d := desired{Gone: t.gone, Stop: t.own}
	if t.assignment != nil || t.broken != "" {
		d.Known = true
	}
	if t.own.Mode != muster.StopNone {
		d.Known = true
	}
	if a := t.assignment; a != nil {
		d.Go = a.Alloc.Go
		if a.Alloc.Stop.Mode > d.Stop.Mode {
			d.Stop = a.Alloc.Stop
		}
	}
	return d
}

func (t *task) observed(l *leases, now exec.BootTime) observed {
	return observed{
		Phase: t.phase, Busy: t.busy || !t.retryAt.IsZero(), Forked: t.forked, Asked: t.asked,
		Leased: l.holds(t.id, t.lease(), now),
	}
}

// report is what there is to say of the allocation now.
func (t *task) report() muster.AllocReport {
	r := t.end
	r.ID, r.Phase = t.id, t.phase
	if t.phase != muster.AllocEnded {
		r = muster.AllocReport{ID: t.id, Phase: t.phase, Running: t.end.Running}
	}
	return r
}

// news says whether the servers should hear of it. That it is ready matters to a gang that waits for it only.
func (t *task) news() bool {
	if t.phase <= t.acked {
		return false
	}
	switch t.phase {
	case muster.AllocReady:
		return t.assignment != nil && !t.assignment.Alloc.Go
	case muster.AllocRunning, muster.AllocStopping, muster.AllocEnded:
		return true
	}
	return false
}
