package simulation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
	"github.com/musterhpc/muster/worker/step"
)

// agent is the process of an agent: the real machine that decides, and hands in the simulated world.
type agent struct {
	*proc
	m         *machine
	machine   *step.Machine
	connected bool     // to the supervisor
	early     []func() // what the supervisor said before the machine was told that it is there
	talk      *step.Session
	stream    *stream
	served    *session
	server    int
	pause     time.Duration
	since     time.Duration // when this life began
	renewed   bool          // a renewal was answered in this life
}

var _ step.Hands = (*agent)(nil)

// What the supervisor may take for an answer.
const (
	prepareWithin = 30 * time.Second
	startWithin   = 10 * time.Second
	stopWithin    = 5 * time.Second
	extendWithin  = time.Second
	firstPause    = 50 * time.Millisecond
	longPause     = 2 * time.Second
)

// start begins a life of the agent.
func (a *agent) start() {
	if a.alive || !a.m.up {
		return
	}
	a.begin()
	a.machine, a.connected, a.early, a.talk, a.stream, a.renewed = nil, false, nil, nil, nil, false
	a.pause, a.since = firstPause, a.m.w.now
	a.server = a.m.rand.IntN(len(a.m.w.servers))
	a.meet(func(statuses []exec.Status) {
		history := step.History{Seen: a.m.history.Seen, Intents: a.m.history.Intents, Ended: a.m.history.Ended}
		if a.m.w.bugs.ForgetsItsJournal {
			history = step.NewHistory()
		}
		a.machine = step.New(step.Self{Node: a.m.name, Boot: a.m.row.Boot}, a, history, statuses, slices.Clone(a.m.exits))
		a.met()
		a.machine.Turn()
		a.tick()
		a.connect()
	})
}

// meet connects to the supervisor, however long that takes, and gives what it knows.
func (a *agent) meet(then func([]exec.Status)) {
	if !a.m.supervise() {
		a.after(20*time.Millisecond, func() { a.meet(then) })
		return
	}
	a.ask(5*time.Second, func() (any, error) {
		a.m.super.tells, a.early = a.life, nil
		return a.m.super.list(), nil
	}, func(answer any, err error) {
		if err != nil {
			a.after(time.Second, func() { a.meet(then) })
			return
		}
		then(answer.([]exec.Status))
	})
}

// met goes on with what the supervisor said meanwhile.
func (a *agent) met() {
	a.connected = true
	for _, do := range a.early {
		do()
	}
	a.early = nil
}

// told does what the supervisor's connection brings, in the agent's life that it is of.
func (a *agent) told(life int, do func()) {
	switch {
	case a.life != life || !a.alive:
	case !a.connected:
		a.early = append(a.early, do)
	default:
		do()
		a.machine.Turn()
	}
}

// kill ends the agent.
func (a *agent) kill() {
	if !a.alive {
		return
	}
	a.end()
	a.machine, a.connected, a.talk, a.stream = nil, false, nil, nil
	a.m.w.net.died(a.proc)
}

// ask asks the supervisor for something, and waits for an answer not longer than limit.
func (a *agent) ask(limit time.Duration, request func() (any, error), done func(any, error)) {
	super, life := a.m.super, a.life
	over := false
	finish := func(answer any, err error) {
		if !over && a.life == life {
			over = true
			done(answer, err)
		}
	}
	if !super.alive {
		a.at(time.Millisecond, func() { finish(nil, errors.New("the supervisor is gone")) })
		return
	}
	super.at(between(a.host.rand, 50*time.Microsecond, time.Millisecond), func() {
		answer, err := request()
		a.proc.postTo(life, func() { finish(answer, err) })
	})
	a.after(limit, func() { finish(nil, errTimeout) })
}

// postTo is at, for one life only, called by another process.
func (p *proc) postTo(life int, do func()) {
	p.at(50*time.Microsecond, func() {
		if p.life == life {
			do()
		}
	})
}

// post lets the loop do something, and what follows from it.
func (a *agent) post(do func()) {
	a.at(20*time.Microsecond, func() {
		do()
		a.machine.Turn()
	})
}

func (a *agent) tick() {
	a.after(step.Heartbeat, func() {
		a.machine.LookAtClocks()
		a.machine.Turn()
		a.tick()
	})
}

// connect opens a session with the next server.
func (a *agent) connect() {
	a.server = (a.server + 1) % len(a.m.w.servers)
	s := a.m.w.servers[a.server]
	a.m.w.net.connect(a.proc, s.proc, func(st *stream) {
		if st == nil {
			a.again()
			return
		}
		served := s.accept(st)
		a.stream = st
		st.over[0] = func() { a.closed(st) }
		row := a.m.row
		a.m.rejoin++
		row.Session, row.Number = fmt.Sprintf("%s-%d", a.m.name, a.m.rejoin), uint64(a.m.rejoin)
		if a.m.w.bugs.HellosOvertake {
			row.Number = 0
		}
		a.served = served
		a.talk = a.machine.SessionOpened(&row)
		a.machine.Turn()
	})
}

func (a *agent) again() {
	a.after(a.pause/2+between(a.host.rand, 0, a.pause/2+1), a.connect)
	a.pause = min(2*a.pause, longPause)
}

// closed takes in that the stream has ended.
func (a *agent) closed(st *stream) {
	if a.stream != st {
		return
	}
	if a.talk.Welcomed() {
		a.pause = firstPause
	}
	a.machine.SessionClosed(a.talk)
	a.stream = nil
	a.machine.Turn()
	a.again()
}

// hears takes in what the server says.
func (a *agent) hears(st *stream, m *wire.ToWorker) {
	if a.stream != st || a.machine == nil {
		return
	}
	if a.m.w.bugs.ActsOnOlderViews {
		if v := m.GetView(); v != nil {
			if is, err := v.GetVersion().Domain(); err == nil && is.Before(a.machine.Seen()) {
				v.Version = wire.VersionOf(a.machine.Seen())
			}
		}
	}
	a.renewed = a.renewed || m.GetRenewed() != nil
	if err := a.machine.Receive(a.talk, m); err != nil {
		a.m.w.say(a.m.name, "hangs up: %v", err)
		a.HangUp(err)
	}
	a.machine.Turn()
}

func (a *agent) Boot() exec.BootTime { return exec.BootTime(a.host.clock()) }

func (a *agent) Wall() time.Time { return a.host.wall() }

func (a *agent) Gauges() *wire.Gauges { return nil }

func (a *agent) Send(m *wire.FromWorker) {
	served := a.served
	a.stream.send(0, func() { served.hears(m) })
}

func (a *agent) HangUp(error) {
	if a.stream != nil {
		a.stream.end(0)
	}
}

func (a *agent) Prepare(x *step.Assignment, end exec.BootTime, records []*wire.JournalRecord) {
	g := x.Of()
	task := exec.Task{
		Alloc: x.Alloc.ID, Job: x.Alloc.Job, Attempt: x.Alloc.Attempt, TimeLimit: x.Spec.TimeLimit, Checkpoint: g.Checkpoint,
		KillTimeout: g.Task.KillTimeout, Lease: x.Alloc.Lease, LeaseEnd: end,
	}
	if a.m.w.bugs.LeasesDoNotKill {
		task.Lease = 0
	}
	waits := 2
	problem := ""
	both := func() {
		if waits--; waits == 0 {
			a.machine.Prepared(task.Alloc, problem)
		}
	}
	a.m.write(records, both)
	a.ask(prepareWithin, func() (any, error) { return nil, a.m.super.prepare(task, x) }, func(_ any, err error) {
		if err != nil {
			problem = err.Error()
		}
		both()
		a.machine.Turn()
	})
}

func (a *agent) Start(x *step.Assignment, records []*wire.JournalRecord) {
	id := x.Alloc.ID
	a.m.write(records, func() {
		a.m.w.say(a.m.name, "orders the start of %s", a.m.w.judge.name(id))
		a.ask(startWithin, func() (any, error) { return nil, a.m.super.run(id) }, func(_ any, err error) {
			a.machine.Started(id, err)
			a.machine.Turn()
		})
	})
}

func (a *agent) Stop(id muster.AllocID, stop muster.Stop) {
	if stop.Reason == step.Disowned {
		a.m.w.judge.disowned(a.m, id)
	}
	a.ask(stopWithin, func() (any, error) { return nil, a.m.super.stop(id, stop) }, func(_ any, err error) {
		a.machine.Stopped(id, stop.Mode, err)
		a.machine.Turn()
	})
}

func (a *agent) End(end muster.AllocReport, record *wire.JournalRecord) {
	a.m.write([]*wire.JournalRecord{record}, func() { a.machine.EndWritten(end) })
}

func (a *agent) Forget(id muster.AllocID, supervised bool, record *wire.JournalRecord) {
	a.m.write([]*wire.JournalRecord{record}, func() {
		if !supervised {
			a.m.forgetExit(id)
			a.machine.Forgotten(id)
			return
		}
		a.ask(stopWithin, func() (any, error) { a.m.super.forget(id); return nil, nil }, func(any, error) {
			a.machine.Forgotten(id)
			a.machine.Turn()
		})
	})
}

func (a *agent) Extend(ends map[muster.AllocID]exec.BootTime) {
	a.ask(extendWithin, func() (any, error) { return a.m.super.extend(ends), nil }, func(any, error) {})
}

func (a *agent) Living(ends map[muster.AllocID]exec.BootTime) {
	a.ask(extendWithin, func() (any, error) { return a.m.super.extend(ends), nil }, func(answer any, err error) {
		alive, _ := answer.([]muster.AllocID)
		a.machine.Lived(alive, err)
		a.machine.Turn()
	})
}

func (a *agent) Kill(id muster.AllocID) {
	a.post(func() {
		if p := a.m.procs[id]; p != nil && !a.m.w.bugs.LeasesDoNotKill {
			a.m.w.say(a.m.name, "kills %s past its silent supervisor", a.m.w.judge.name(id))
			a.m.kill(p)
		}
		a.machine.Killed(id, nil)
	})
}

func (a *agent) Supervise(l step.Loss) {
	a.meet(func(statuses []exec.Status) {
		found, records := l.Settle(statuses, slices.Clone(a.m.exits), a.host.wall())
		a.m.write(records, func() {
			a.machine.Regained(found)
			a.met()
		})
	})
}

func (a *agent) Found(id muster.AllocID, phase muster.AllocPhase) {
	a.m.w.say(a.m.name, "finds %s, %s", a.m.w.judge.name(id), phase)
}

func (a *agent) Ready(id muster.AllocID) { a.m.w.judge.ready(id) }

func (a *agent) Running(muster.AllocID, int) {}

func (a *agent) Ended(end muster.AllocReport, again bool) { a.m.w.judge.reported(a.m, end, again) }

func (a *agent) Warn(string, ...any) {}
