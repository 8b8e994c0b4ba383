package simulation

import (
	"fmt"
	"time"

	"github.com/musterhpc/muster"
)

// Bugs are things done wrong on purpose: each is a guard that the real code has and that this world takes away. The zero value
// is the world as it should be.
type Bugs struct {
	ContactIsNow       bool // a leader answers renewals without hearing from a majority
	LeasesAreShort     bool // a leader ends leases before they are over
	LeasesDoNotKill    bool // nobody on a machine kills what has no lease any more
	ActsOnOlderViews   bool // an agent takes an older view for a new one
	ServesThePast      bool // a server answers a worker that has seen more than it
	IntentsAreLate     bool // starts are on the disk after the process is
	ForgetsItsJournal  bool // an agent begins without its journal
	RenewsAheadOfState bool // a server that lags passes renewals on
	HellosOvertake     bool // a hello that was overtaken by another session counts
	AnswersBeforeSync  bool // a server says that it has what is not on its disk
}

// Counts is what happened in a run.
type Counts struct {
	Faults, Elections, Depositions, Restores, Lost, Doubled int
	Entries, Passes, Placed, Started, Gone, Ended           int
	Submitted, Cancelled, Sessions                          int
}

// Outcome is how a run ended.
type Outcome struct {
	Steps   int
	Virtual time.Duration
	Promise string // which was broken; "" = every one was kept
	Failure string // how
	At      time.Duration
	Counts  Counts
}

const (
	settleTime = 20 * time.Minute // in which all comes to rest after the last fault
	settleLook = time.Second
)

// Run runs a plan. tell, when it is not nil, hears the story line by line.
func Run(p *Plan, bugs Bugs, tell func(at time.Duration, who, what string)) Outcome {
	return run(p, bugs, tell, p.Horizon+settleTime)
}

// run is Run, but no longer than until; what must hold at rest is judged only when there is time for that.
func run(p *Plan, bugs Bugs, tell func(at time.Duration, who, what string), until time.Duration) Outcome {
	w := newWorld(p, bugs)
	w.tell = tell
	for w.judge.failure == "" && w.step(min(p.Horizon, until)) {
	}
	for w.judge.failure == "" && w.now < until && !w.atRest() {
		for next := min(w.now+settleLook, until); w.judge.failure == "" && w.step(next); {
		}
	}
	if w.judge.failure == "" && until >= p.Horizon+settleTime {
		w.judge.rest()
	}
	at := w.judge.at
	if w.judge.failure == "" {
		at = 0
	}
	return Outcome{Steps: w.steps, Virtual: w.now, Promise: w.judge.promise, Failure: w.judge.failure, At: at, Counts: w.counts}
}

func newWorld(p *Plan, bugs Bugs) *world {
	w := &world{plan: p, bugs: bugs}
	w.net = newNetwork(w)
	w.judge = newJudge(w)
	w.wire = &proc{host: w.newHost("network", -1, 1), name: "network"}
	w.wire.begin()
	w.clients = newClients(w)
	for i := range p.Servers {
		w.servers = append(w.servers, newServer(w, i, p.Drift[i]))
	}
	for i := range p.Machines {
		w.machines = append(w.machines, w.newMachine(i, p.Drift[p.Servers+i]))
	}
	for _, s := range w.servers {
		s.start()
	}
	for _, m := range w.machines {
		m.start()
	}
	w.clients.start()
	for i := range p.Faults {
		f := &p.Faults[i]
		w.wire.at(f.At, func() { w.strike(f) })
	}
	return w
}

// leader is the one of the highest term.
func (w *world) leader() *server {
	var best *server
	for _, s := range w.servers {
		if s.alive && s.role == leader && s.lead != nil && s.lead.ready && (best == nil || s.disk.term > best.disk.term) {
			best = s
		}
	}
	return best
}

// atRest says whether nothing is left to do.
func (w *world) atRest() bool {
	s := w.leader()
	if s == nil || len(w.judge.alive) > 0 || w.now < w.plan.Horizon+20*time.Second {
		return false
	}
	for _, c := range w.clients.jobs {
		if !c.acked {
			return false
		}
	}
	for job := range s.snapshot().Jobs(0) {
		if !job.Phase.Terminal() && job.Phase != muster.JobHeld {
			return false
		}
	}
	for _, o := range w.servers {
		if !o.alive || o.applied != s.applied {
			return false
		}
	}
	return true
}

// String is the counts in a line.
func (c Counts) String() string {
	return fmt.Sprintf("%d faults, %d elections, %d depositions, %d restores, %d datagrams lost and %d doubled; %d submissions, %d cancels, "+
		"%d sessions; %d entries, %d passes, %d gangs placed, %d processes started, %d gone, %d jobs ended", c.Faults, c.Elections, c.Depositions,
		c.Restores, c.Lost, c.Doubled, c.Submitted, c.Cancelled, c.Sessions, c.Entries, c.Passes, c.Placed, c.Started, c.Gone, c.Ended)
}

// add sums up.
func (c *Counts) add(o Counts) {
	c.Faults += o.Faults
	c.Elections += o.Elections
	c.Depositions += o.Depositions
	c.Restores += o.Restores
	c.Lost += o.Lost
	c.Doubled += o.Doubled
	c.Entries += o.Entries
	c.Passes += o.Passes
	c.Placed += o.Placed
	c.Started += o.Started
	c.Gone += o.Gone
	c.Ended += o.Ended
	c.Submitted += o.Submitted
	c.Cancelled += o.Cancelled
	c.Sessions += o.Sessions
}
