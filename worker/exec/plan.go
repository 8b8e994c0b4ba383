package exec

import (
	"fmt"
	"time"

	"github.com/musterhpc/muster"
)

// Plan decides what a running task is sent, and when. It is pure: times come in, actions go out.
type Plan struct {
	grace       time.Duration
	killTimeout time.Duration
	limit       time.Duration // 0 = none
	lease       time.Duration // 0 = none

	started  BootTime // 0 = not yet
	leaseEnd BootTime

	stop      muster.Stop // in force; Mode only goes up
	termAt    BootTime    // when the kill signal goes out; 0 = not planned
	killAt    BootTime    // when SIGKILL does; 0 = not planned
	wantSave  bool        // the request to save itself is to be sent
	termed    bool
	killed    bool
	lapsed    bool // its lease ended: it can't be extended any more
	overlimit bool // the time limit had its word
}

// Action is what a task is sent.
type Action uint8

// The actions.
const (
	ActNothing Action = iota
	ActSave           // stop file, and the checkpoint signal
	ActTerm           // kill signal
	ActKill           // SIGKILL, and again until nothing is left
)

// NewPlan is the plan of a task that was not started yet.
func NewPlan(t *Task) Plan {
	return Plan{grace: t.Checkpoint.Grace, killTimeout: t.KillTimeout, limit: t.TimeLimit, lease: t.Lease, leaseEnd: t.LeaseEnd}
}

// Begin says that the process of the task began: its time limit counts from now.
func (p *Plan) Begin(now BootTime) { p.started = now }

// Stop gives the stop in force; Mode StopNone: there is none.
func (p *Plan) Stop() muster.Stop { return p.stop }

// margin is how long before the end of a lease the kill comes: max(2 s, 10 %), so that a process that dies slowly is gone
// before anyone may start it elsewhere.
func margin(lease time.Duration) time.Duration { return max(2*time.Second, lease/10) }

// lapse is when the lease kills; 0 = never.
func (p *Plan) lapse() BootTime {
	if p.lease <= 0 {
		return 0
	}
	return p.leaseEnd.Add(-margin(p.lease))
}

// Ask takes in a request to stop. One that isn't stronger than what is in force changes nothing, so the first class stays.
func (p *Plan) Ask(stop muster.Stop, now BootTime) {
	if stop.Mode <= p.stop.Mode {
		return
	}
	p.stop = stop
	switch {
	case stop.Mode == muster.StopSave: // without a grace too: who gets the kill signal can read why, and has the kill timeout
		p.wantSave = true
		p.term(now.Add(p.grace))
	case stop.Mode == muster.StopKill:
		p.kill(now)
	default:
		p.term(now)
	}
}

func (p *Plan) term(at BootTime) {
	if p.termAt == 0 || at < p.termAt {
		p.termAt = at
	}
}

func (p *Plan) kill(at BootTime) {
	if p.killAt == 0 || at < p.killAt {
		p.killAt = at
	}
}

// Extend moves the lease's end, forward only, and says whether the task still lives by it.
func (p *Plan) Extend(end BootTime, now BootTime) bool {
	if p.lapsed || p.lease > 0 && now >= p.lapse() {
		return false
	}
	p.leaseEnd = max(p.leaseEnd, end)
	return true
}

// Due gives the next action whose time has come; ActNothing when there is none now. A kill, once due, stays due: it is
// repeated until no process is left.
func (p *Plan) Due(now BootTime) Action {
	p.look(now)
	switch {
	case p.killed, p.killAt != 0 && now >= p.killAt:
		p.killed, p.wantSave, p.termed = true, false, true
		return ActKill
	case p.wantSave:
		p.wantSave = false
		return ActSave
	case !p.termed && p.termAt != 0 && now >= p.termAt:
		p.termed = true
		p.kill(now.Add(p.killTimeout))
		return ActTerm
	}
	return ActNothing
}

// look applies the two clocks that nobody asks for: the lease and the time limit.
func (p *Plan) look(now BootTime) {
	if at := p.lapse(); at != 0 && now >= at && !p.lapsed {
		p.lapsed = true
		p.Ask(muster.Stop{
			Mode: muster.StopKill, Class: p.classOr(muster.ClassNode),
			Reason: p.reasonOr("no contact with the servers for " + muster.FormatDuration(p.lease)),
		}, now)
	}
	if p.limit <= 0 || p.started == 0 || p.overlimit {
		return
	}
	end := p.started.Add(p.limit)
	reason := "its time limit of " + muster.FormatDuration(p.limit) + " was reached"
	if p.stop.Mode == muster.StopNone && now >= end.Add(-p.grace) {
		p.Ask(muster.Stop{Mode: muster.StopSave, Class: muster.ClassTimeout, Reason: reason}, now)
		p.termAt = end
	}
	if now >= end {
		p.overlimit = true
		p.Ask(muster.Stop{Mode: muster.StopTerm, Class: p.classOr(muster.ClassTimeout), Reason: p.reasonOr(reason)}, now)
		p.term(now)
	}
}

// classOr keeps the class of a stop in force: what began the stop is why the task ended.
func (p *Plan) classOr(c muster.Class) muster.Class {
	if p.stop.Mode != muster.StopNone {
		return p.stop.Class
	}
	return c
}

func (p *Plan) reasonOr(s string) string {
	if p.stop.Mode != muster.StopNone {
		return p.stop.Reason
	}
	return s
}

// stopWord is the first word of the stop file.
func stopWord(c muster.Class) string {
	switch c {
	case muster.ClassPreempted, muster.ClassTimeout, muster.ClassDrain:
		return c.String()
	}
	return muster.ClassCancelled.String()
}

// stopLine is the content of the stop file: why, and by when the task must be done.
func stopLine(c muster.Class, by time.Time) string {
	return fmt.Sprintf("%s %s\n", stopWord(c), by.Format(time.RFC3339))
}
