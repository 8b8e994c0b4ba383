package step

import (
	"github.com/musterhpc/muster"
)

// desired is what the servers want of an allocation.
type desired struct {
	Known bool        // a view of this agent's life has named it
	Gone  bool        // the state has it as ended, or doesn't know it
	Go    bool        // the barrier is open
	Stop  muster.Stop // Mode StopNone: none was asked
}

// observed is what is the case on this machine.
type observed struct {
	Phase  muster.AllocPhase // AllocPlaced: nothing was done yet
	Busy   bool              // an action is under way
	Forked bool              // its start was ordered once: it never is again
	Leased bool              // its lease leaves time to start
	Asked  muster.StopMode   // the strongest stop that its supervisor has taken
}

// action is the one thing to do next.
type action uint8

const (
	doNothing action = iota
	doPrepare
	doStart
	doStop   // the desired stop, by its supervisor
	doKill   // SIGKILL, by its supervisor
	doEnd    // it ends without having been started
	doForget // remove every trace but its logs
)

var actionNames = []string{"nothing", "prepare", "start", "stop", "kill", "end", "forget"}

func (a action) String() string { return actionNames[a] }

// step decides. It is called again after every change; each answer brings the allocation forward, and ended is followed only
// by forget.
func step(d desired, o observed) action {
	switch {
	case o.Busy:
		return doNothing
	case o.Phase == muster.AllocEnded:
		if d.Gone {
			return doForget
		}
		return doNothing // reported until the state has it
	case d.Gone:
		return stepGone(o)
	case !d.Known:
		return doNothing // re-adopted: what is wanted of it comes with the first view
	case d.Stop.Mode != muster.StopNone:
		return stepStop(d, o)
	case o.Phase == muster.AllocPlaced:
		return doPrepare
	case o.Phase == muster.AllocReady && d.Go && o.Leased && !o.Forked:
		return doStart
	}
	return doNothing
}

// stepGone: nobody waits for its end any more.
func stepGone(o observed) action {
	switch {
	case o.Phase == muster.AllocPlaced:
		return doForget
	case o.Asked < muster.StopKill:
		return doKill
	}
	return doNothing
}

func stepStop(d desired, o observed) action {
	switch {
	case o.Phase == muster.AllocPlaced:
		return doEnd
	case d.Stop.Mode > o.Asked:
		return doStop
	}
	return doNothing
}
