package simulation

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/cluster/duty"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/wire"
)

var (
	errUnknown   = muster.Errorf(muster.KindUnavailable, "whether it was done is not known")
	errNotLeader = muster.Errorf(muster.KindUnavailable, "this server is not the leader; nothing was done")
)

// The rhythm of duties that is the cluster package's own.
const (
	backoffTick  = 250 * time.Millisecond
	drainTick    = time.Second
	purgeTick    = 10 * time.Second
	keepJobs     = 60
	disagreement = time.Second
	maxFlights   = 2
)

// leadership is one term of a server as leader: what the cluster package's leadership does with goroutines, over the same
// duties and the same scheduler.
type leadership struct {
	s     *server
	term  uint64
	since duty.Boot
	ready bool
	over  bool

	leases  *duty.Leases
	asked   []asked
	ending  bool // a batch of ends is being proposed
	view    *scheduler.View
	touched state.Changed
	all     bool // any row may have changed
	planned bool // a pass is due
	busy    bool // a plan is on its way
	refused int  // passes in a row of which the state took nothing
	delays  duty.Backoffs
	drained map[drain]bool

	queue []*proposal
	aloft int
}

type asked struct {
	renewal *duty.Renewal
	reply   func(any, error)
}

type drain struct {
	node     muster.NodeID
	deadline muster.Time
}

// proposal is a command under way.
type proposal struct {
	command *wire.Command
	done    func(state.Result, uint64, error)
}

func (s *server) beginLeadership() {
	l := &leadership{s: s, term: s.disk.term, since: s.boot(), leases: duty.NewLeases(s.boot()), delays: duty.Backoffs{},
		drained: map[drain]bool{}}
	s.lead = l
	s.contact.Lead(l.term)
	s.propose(nil, func(_ []state.Result, _ uint64, err error) { // the barrier
		if err == nil && !l.over {
			l.begin()
		}
	})
	s.heartbeat()
}

// endLeadership gives up what is under way: its outcome is not known here any more.
func (s *server) endLeadership() {
	l := s.lead
	s.lead = nil
	l.over = true
	for _, index := range slices.Sorted(maps.Keys(s.flights)) {
		f := s.flights[index]
		delete(s.flights, index)
		f.done(nil, 0, errUnknown)
	}
	for _, p := range l.queue {
		p.done(state.Result{}, 0, errNotLeader)
	}
	for _, a := range l.asked {
		a.reply(nil, errNotLeader)
	}
}

func (l *leadership) begin() {
	l.ready = true
	l.s.w.say(l.s.name, "has everything that was committed before term %d, and begins its duties", l.term)
	if l.s.snapshot().Cluster().ID == "" {
		l.duty(&state.InitCluster{ClusterID: "simulated"}, nil)
	}
	l.all = true
	l.plan()
	l.every(duty.LeaseTick, l.tickLeases)
	l.every(backoffTick, l.wake)
	l.every(drainTick, l.endDrains)
	l.every(purgeTick, l.purge)
}

func (l *leadership) every(d time.Duration, f func()) {
	l.s.after(d, func() {
		if !l.over {
			f()
			l.every(d, f)
		}
	})
}

// propose commits a command at this server.
func (s *server) proposeHere(command *wire.Command, done func(state.Result, uint64, error)) {
	if s.role != leader {
		done(state.Result{}, 0, errNotLeader)
		return
	}
	s.lead.queue = append(s.lead.queue, &proposal{command, done})
	s.lead.fly()
}

func (l *leadership) duty(c state.Command, done func(state.Result, uint64, error)) {
	if done == nil {
		done = func(state.Result, uint64, error) {}
	}
	l.queue = append(l.queue, &proposal{wire.CommandOf(c), done})
	l.fly()
}

// fly puts what waits into one entry: two are in flight at most, and the rest gathers.
func (l *leadership) fly() {
	if l.aloft >= maxFlights || len(l.queue) == 0 {
		return
	}
	batch := l.queue
	l.queue = nil
	l.aloft++
	entry := &wire.Entry{Stamp: int64(muster.TimeOf(l.s.host.wall()))}
	for _, p := range batch {
		entry.Commands = append(entry.Commands, p.command)
	}
	l.s.propose(wire.Encode(entry), func(results []state.Result, index uint64, err error) {
		l.aloft--
		for i, p := range batch {
			if err != nil {
				p.done(state.Result{}, 0, err)
			} else {
				p.done(results[i], index, nil)
			}
		}
		if !l.over {
			l.fly()
		}
	})
}

// changed notes what an entry touched: the schedule duty is woken.
func (l *leadership) changed(c state.Changed, everything bool) {
	if len(c.Jobs)+len(c.Nodes)+len(c.Queues) == 0 && !everything {
		return
	}
	l.touched.Jobs = append(l.touched.Jobs, c.Jobs...)
	l.touched.Nodes = append(l.touched.Nodes, c.Nodes...)
	l.touched.Queues = append(l.touched.Queues, c.Queues...)
	l.all = l.all || everything
	if l.ready {
		l.plan()
	}
}

// plan makes a pass soon, unless one is on its way.
func (l *leadership) plan() {
	if l.planned {
		return
	}
	l.planned = true
	if l.busy {
		return
	}
	d := time.Millisecond
	if l.refused > 1 {
		d = disagreement
	}
	l.busy = true
	l.s.after(d, l.pass)
}

func (l *leadership) pass() {
	if l.over {
		return
	}
	l.busy, l.planned = false, false
	snapshot := l.s.snapshot()
	if l.view == nil || l.all {
		l.view = scheduler.NewView(snapshot)
	} else {
		c := l.touched
		l.view.Advance(snapshot, state.Changed{Jobs: sortedSet(c.Jobs), Nodes: sortedSet(c.Nodes), Queues: sortedSet(c.Queues)})
	}
	l.all, l.touched = false, state.Changed{}
	signals := scheduler.Signals{Suspect: l.leases.Silent(), Load: l.leases.Loads()}
	plan := scheduler.Schedule(l.view, signals, muster.TimeOf(l.s.host.wall()))
	l.s.w.counts.Passes++
	if len(plan.Gangs) == 0 {
		l.refused = 0
		return
	}
	l.busy = true
	l.duty(&state.CommitPlan{Term: l.term, Gangs: plan.Gangs}, func(r state.Result, _ uint64, err error) {
		if l.over {
			return
		}
		l.busy = false
		if l.refused++; err == nil && len(r.Refused) < len(plan.Gangs) {
			l.refused = 0
		}
		l.s.w.counts.Placed += len(plan.Gangs) - len(r.Refused)
		if again := l.planned || plan.More || err != nil || len(r.Refused) > 0; again {
			l.planned = false
			l.plan()
		}
	})
}

func sortedSet[T int | string | muster.JobID | muster.NodeID](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

func (l *leadership) contact() duty.Boot {
	if l.s.w.bugs.ContactIsNow {
		return l.s.boot()
	}
	return l.s.quorum(l.term)
}

// tickLeases ends what has run out.
func (l *leadership) tickLeases() {
	now, contact := l.s.boot(), l.contact()
	if l.s.w.bugs.LeasesAreShort {
		now += duty.Boot(8 * time.Second)
		contact = now
	}
	before := l.leases.Silent()
	due := l.leases.Tick(now, contact, l.s.snapshot())
	l.answer()
	if !maps.Equal(before, l.leases.Silent()) {
		l.plan()
	}
	if len(due) == 0 || l.ending {
		return
	}
	l.ending = true
	left := len(due)
	for _, end := range due {
		end.Term = l.term
		l.s.w.say(l.s.name, "leases have run out: node %d, allocations %v, lost %v", end.Node, end.Allocs, end.Lost)
		l.duty(end, func(r state.Result, _ uint64, err error) {
			if err == nil && r.Err != nil {
				l.leases.Refused(end)
			}
			if left--; left == 0 {
				l.ending = false
			}
		})
	}
}

// renew takes renewals in.
func (s *server) renew(batch *wire.RenewBatch, reply func(any, error)) {
	l := s.lead
	if l == nil || !l.ready {
		reply(nil, errNotLeader)
		return
	}
	l.asked = append(l.asked, asked{l.leases.Arrive(s.boot(), s.snapshot(), batch), reply})
	if s.w.now-s.beat > 5*time.Millisecond {
		s.heartbeat()
	}
	s.settleRenewals()
}

func (s *server) settleRenewals() {
	if l := s.lead; l != nil && l.leases.Waiting() {
		l.leases.Settle(s.boot(), l.contact(), s.snapshot())
		l.answer()
	}
}

func (l *leadership) answer() {
	var ready []func()
	left := l.asked[:0]
	for _, a := range l.asked {
		select {
		case ok := <-a.renewal.Answer:
			reply := &wire.RenewBatchReply{Ok: ok, Index: uint64(l.s.snapshot().Version().Index)}
			ready = append(ready, func() { a.reply(reply, nil) })
		default:
			left = append(left, a)
		}
	}
	clear(l.asked[len(left):])
	l.asked = left
	for _, reply := range ready { // may ask again
		reply()
	}
}

// wake makes jobs eligible whose delay has passed.
func (l *leadership) wake() {
	if due := l.delays.Due(l.s.boot(), l.s.snapshot()); len(due) > 0 {
		l.duty(&state.Wake{Term: l.term, Jobs: due}, nil)
	}
}

func (l *leadership) endDrains() {
	now := muster.TimeOf(l.s.host.wall())
	for node := range l.s.snapshot().Nodes() {
		d := drain{node.ID, node.Drain.Deadline}
		if node.Drain.On && d.deadline != 0 && now >= d.deadline && node.Allocs > 0 && !l.drained[d] {
			l.drained[d] = true
			l.duty(&state.DrainDue{Term: l.term, Node: node.ID}, nil)
		}
	}
}

func (l *leadership) purge() {
	jobs := duty.Outlived(l.s.snapshot(), muster.TimeOf(l.s.host.wall().Add(-30*24*time.Hour)), keepJobs)
	if len(jobs) > 0 {
		l.duty(&state.Purge{Term: l.term, Jobs: jobs}, nil)
	}
}

// atLeader asks the leader, wherever it is, and tries again while there is none, not longer than limit. What is asked must bear
// being done twice.
func (s *server) atLeader(limit time.Duration, ask func(leader *server, reply func(any, error)), done func(answer any, here bool, err error)) {
	until := s.w.now + limit
	pause := 5 * time.Millisecond
	var try func()
	again := func(err error) {
		if muster.KindOf(err) != muster.KindUnavailable && !errors.Is(err, errTimeout) || s.w.now+pause >= until {
			done(nil, false, muster.Errorf(muster.KindUnavailable, "no leader: %v", err))
			return
		}
		s.after(pause, try)
		pause = min(2*pause, 100*time.Millisecond)
	}
	try = func() {
		switch {
		case s.role == leader:
			life := s.life
			ask(s, func(answer any, err error) {
				switch {
				case s.life != life:
				case err != nil:
					again(err)
				default:
					done(answer, true, nil)
				}
			})
		case s.leaderIs == 0:
			again(errNotLeader)
		default:
			to := s.w.servers[s.leaderIs-1]
			s.w.net.call(s.proc, to.proc, min(2*time.Second, max(until-s.w.now, time.Millisecond)),
				func(reply func(any, error)) { ask(to, reply) },
				func(answer any, err error) {
					if err != nil {
						again(err)
						return
					}
					done(answer, false, nil)
				})
		}
	}
	try()
}

// committed is the answer to a command.
type committedReply struct {
	result state.Result
	index  uint64
}

// hold is how long a request waits for a leader.
const hold = 5 * time.Second

// commitCommand commits a command wherever the leader is; the answer comes when this server has applied it too.
func (s *server) commitCommand(command *wire.Command, done func(committedReply, error)) {
	s.atLeader(hold, func(to *server, reply func(any, error)) {
		to.proposeHere(command, func(r state.Result, index uint64, err error) {
			if err != nil {
				reply(nil, err)
				return
			}
			reply(committedReply{r, index}, nil)
		})
	}, func(answer any, here bool, err error) {
		if err != nil {
			done(committedReply{}, err)
			return
		}
		r := answer.(committedReply)
		if here {
			done(r, nil)
			return
		}
		s.waitApplied(r.index, hold, func(bool) { done(r, nil) })
	})
}
