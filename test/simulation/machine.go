package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
	"github.com/musterhpc/muster/worker/step"
)

// machine is a GPU machine: its disk, an agent, a supervisor, and the processes of tasks.
type machine struct {
	*host
	number int
	kernel *proc // disk, and processes of tasks
	boot   int
	row    muster.Node

	history step.History // what the journal on the disk says
	written time.Duration
	exits   []exec.Status // on the disk
	procs   map[muster.AllocID]*process
	agent   *agent
	super   *supervisor
	rejoin  int  // of sessions
	fencing bool // an operator is saying that it is off
}

// process is what really runs.
type process struct {
	id     muster.AllocID
	job    muster.JobID
	rank   rankKey
	slots  muster.SlotSet
	m      *machine
	of     *supervisor
	life   int // of the supervisor that it dies with
	began  time.Duration
	dying  bool
	code   int
	deaf   bool // to the kill signal
	signal int  // that ended it
}

func (w *world) newMachine(number int, rate float64) *machine {
	h := w.newHost(machineName(number), len(w.servers)+number, rate)
	m := &machine{host: h, number: number, history: step.NewHistory(), procs: map[muster.AllocID]*process{}}
	m.kernel = &proc{host: h, name: h.name}
	m.kernel.begin()
	m.agent = &agent{m: m, proc: &proc{host: h, name: h.name + " agent"}}
	m.super = &supervisor{m: m, proc: &proc{host: h, name: h.name + " supervisor"}}
	m.row = muster.Node{
		Name: h.name, Address: h.name + ":1", IP: fmt.Sprint("10.0.0.", number+1), Hardware: "hardware-" + h.name, Instance: "instance-" + h.name,
		MilliCores: 64_000, Memory: 512 * muster.GiB, PortLow: 20000, PortHigh: 20100, Fencing: "strong",
	}
	for slot := range w.plan.GPUs {
		m.row.GPUs = append(m.row.GPUs, muster.GPU{UUID: fmt.Sprintf("GPU-%s-%d", h.name, slot), Model: "NVIDIA H100 80GB HBM3",
			Memory: 80 * muster.GiB, Health: muster.GPUHealthy})
	}
	return m
}

func (w *world) machineOf(p *proc) *machine { return w.machines[p.host.number-len(w.servers)] }

// start boots the machine.
func (m *machine) start() {
	m.up, m.asleep = true, false
	m.boot++
	m.row.Boot = fmt.Sprint("boot-", m.name, "-", m.boot)
	m.kernel.begin()
	m.written = 0
	m.kernel.after(between(m.rand, 50*time.Millisecond, 500*time.Millisecond), m.agent.start)
}

// crash takes the power away.
func (m *machine) crash() {
	m.up, m.asleep = false, false
	m.kernel.end()
	m.agent.kill()
	m.super.end()
	m.super.ranks = nil
	m.w.net.died(m.super.proc)
	for _, id := range sortedIDs(m.procs) {
		m.w.judge.died(m.procs[id])
	}
	clear(m.procs)
}

func sortedIDs[V any](of map[muster.AllocID]V) []muster.AllocID {
	return slices.SortedFunc(maps.Keys(of), func(a, b muster.AllocID) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Counter, b.Counter))
	})
}

// sleep suspends the whole machine, and wake resumes it.
func (m *machine) sleep() { m.asleep = true }

func (m *machine) wake() {
	if !m.asleep {
		return
	}
	m.asleep, m.woke = false, m.w.now
	for _, p := range []*proc{m.kernel, m.super.proc, m.agent.proc} {
		p.wake()
	}
	m.w.judge.woke(m)
}

// write puts records on the disk, in order; then is told when they are there, unless the agent has ended.
func (m *machine) write(records []*wire.JournalRecord, then func()) {
	if len(records) == 0 {
		m.agent.post(then)
		return
	}
	d := between(m.rand, 300*time.Microsecond, 4*time.Millisecond)
	m.written = max(m.written, m.w.now) + d
	agent, life := m.agent, m.agent.life
	early := m.w.bugs.IntentsAreLate
	if early {
		agent.post(then)
		m.written += 500 * time.Millisecond
	}
	m.kernel.at(m.written-m.w.now, func() {
		for _, r := range records {
			if err := m.history.Apply(r); err != nil {
				m.w.judge.fail("works", "%s can't write its journal: %v", m.name, err)
			}
		}
		if !early && agent.life == life {
			agent.post(then)
		}
	})
}

// fork starts a process. It dies with the supervisor.
func (m *machine) fork(t *exec.Task, a *step.Assignment, s *supervisor) *process {
	argv := a.Of().Task.Args
	runs, _ := time.ParseDuration(argv[0]) // the plan's own
	code, _ := strconv.Atoi(argv[1])
	p := &process{
		id: t.Alloc, job: t.Job, rank: rankKey{t.Job, a.Alloc.Group, a.Alloc.Rank}, slots: a.Alloc.Slots, m: m, of: s, life: s.life,
		began: m.w.now, code: code, deaf: argv[2] == "deaf",
	}
	m.procs[t.Alloc] = p
	m.w.judge.forked(p, a)
	m.kernel.after(runs, func() { m.exit(p, 0) })
	return p
}

// exit ends a process, by itself or by a signal.
func (m *machine) exit(p *process, signal int) {
	if m.procs[p.id] != p {
		return
	}
	delete(m.procs, p.id)
	p.signal = signal
	m.w.judge.died(p)
	if p.of.alive && p.of.life == p.life {
		p.of.at(time.Millisecond, func() { p.of.reap(p) })
	}
}

// signal kills a process: SIGKILL after a moment, since what sits in the kernel takes its time.
func (m *machine) kill(p *process) {
	if !p.dying {
		p.dying = true
		m.kernel.after(between(m.rand, time.Millisecond, 60*time.Millisecond), func() { m.exit(p, 9) })
	}
}

// term asks a process to end.
func (m *machine) term(p *process) {
	if !p.deaf && !p.dying {
		m.kernel.after(between(m.rand, time.Millisecond, 800*time.Millisecond), func() { m.exit(p, 15) })
	}
}

// supervisor is the model of the process that runs tasks: requests as a real one takes them, and the real plan of signals.
type supervisor struct {
	*proc
	m       *machine
	ranks   map[muster.AllocID]*rank
	looking bool
	tells   int // the life of the agent that it is connected to
}

type rank struct {
	task       exec.Task
	assignment *step.Assignment
	plan       exec.Plan
	status     exec.Status
	started    bool
	process    *process
}

const superTick = 100 * time.Millisecond

// living says whether a supervisor runs, and starts one when none does and nothing is left of the last.
func (m *machine) supervise() bool {
	if m.super.alive {
		return true
	}
	for _, id := range sortedIDs(m.procs) {
		m.kill(m.procs[id])
	}
	if len(m.procs) > 0 {
		return false
	}
	m.super.begin()
	m.super.ranks, m.super.looking, m.super.tells = map[muster.AllocID]*rank{}, false, 0
	return true
}

// kill ends the supervisor: its tasks die with it.
func (s *supervisor) kill() {
	if !s.alive {
		return
	}
	s.end()
	for _, id := range sortedIDs(s.m.procs) {
		s.m.kill(s.m.procs[id])
	}
	if agent := s.m.agent; agent.alive && s.tells == agent.life {
		life := agent.life
		agent.at(2*time.Millisecond, func() {
			agent.told(life, func() {
				agent.connected = false
				agent.machine.SupervisorLost()
			})
		})
	}
}

func (s *supervisor) now() exec.BootTime { return exec.BootTime(s.host.clock()) }

// look does what is due, while any task lives.
func (s *supervisor) look() {
	if s.looking {
		return
	}
	s.looking = true
	s.after(superTick, func() {
		s.looking = false
		busy := false
		for _, id := range sortedIDs(s.ranks) {
			if r := s.ranks[id]; r.status.Phase != muster.AllocEnded {
				busy = true
				s.act(r)
			}
		}
		if busy {
			s.look()
		}
	})
}

func (s *supervisor) act(r *rank) {
	for {
		todo := r.plan.Due(s.now())
		if todo == exec.ActNothing {
			return
		}
		if r.process == nil {
			if todo == exec.ActKill && !r.started {
				s.conclude(r, nil)
			}
			if todo == exec.ActKill {
				return
			}
			continue
		}
		if r.status.Phase == muster.AllocRunning && r.plan.Stop().Mode != muster.StopNone {
			r.status.Phase = muster.AllocStopping
			s.publish(r)
		}
		switch todo {
		case exec.ActTerm:
			s.m.term(r.process)
		case exec.ActKill:
			s.m.kill(r.process)
			return
		}
	}
}

// publish tells the agent.
func (s *supervisor) publish(r *rank) {
	agent, life, status := s.m.agent, s.tells, r.status
	agent.at(100*time.Microsecond, func() { agent.told(life, func() { agent.machine.Status(status) }) })
}

// reap takes in that a process has ended.
func (s *supervisor) reap(p *process) {
	if r := s.ranks[p.id]; r != nil && r.process == p {
		s.conclude(r, p)
	}
}

// conclude ends a task: the exit is on the disk before anyone hears of it.
func (s *supervisor) conclude(r *rank, p *process) {
	r.started = true
	stop := r.plan.Stop()
	status := r.status
	status.Phase, status.Ended = muster.AllocEnded, s.host.wall()
	switch {
	case stop.Mode != muster.StopNone:
		status.Class, status.Message = stop.Class, stop.Reason
	case p != nil && (p.code != 0 || p.signal != 0):
		status.Class = muster.ClassExit
	}
	if p != nil {
		status.ExitCode = p.code
		if status.Signal = p.signal; p.signal != 0 {
			status.ExitCode = 128 + p.signal
		}
	}
	s.after(between(s.host.rand, 200*time.Microsecond, 3*time.Millisecond), func() {
		s.m.exits = append(s.m.exits, status)
		r.status = status
		s.publish(r)
	})
}

func (s *supervisor) prepare(t exec.Task, a *step.Assignment) error {
	if slices.ContainsFunc(s.m.exits, func(e exec.Status) bool { return e.Alloc == t.Alloc }) {
		if s.ranks[t.Alloc] != nil {
			return nil
		}
		return muster.Errorf(muster.KindConflict, "allocation %s has ended already", t.Alloc)
	}
	if s.ranks[t.Alloc] != nil {
		return nil
	}
	r := &rank{task: t, assignment: a, plan: exec.NewPlan(&t), status: exec.Status{Alloc: t.Alloc, Phase: muster.AllocReady}}
	s.ranks[t.Alloc] = r
	s.publish(r)
	s.look()
	return nil
}

func (s *supervisor) run(id muster.AllocID) error {
	r := s.ranks[id]
	switch {
	case r == nil:
		return muster.Errorf(muster.KindNotFound, "allocation %s was not prepared here", id)
	case r.started:
		return nil
	}
	if ahead := r.plan; ahead.Due(s.now()) == exec.ActKill {
		r.plan = ahead
		s.conclude(r, nil)
		return nil
	}
	r.started = true
	now := s.now()
	r.plan.Begin(now)
	r.process = s.m.fork(&r.task, r.assignment, s)
	r.status.Phase, r.status.Running, r.status.Pid = muster.AllocRunning, s.host.wall(), 1
	s.publish(r)
	return nil
}

func (s *supervisor) stop(id muster.AllocID, stop muster.Stop) error {
	r := s.ranks[id]
	if r == nil {
		return muster.Errorf(muster.KindNotFound, "allocation %s is not here", id)
	}
	if r.status.Phase == muster.AllocEnded {
		return nil
	}
	r.plan.Ask(stop, s.now())
	switch {
	case r.started && r.process != nil:
		s.act(r)
	case !r.started && r.plan.Stop().Mode != muster.StopNone:
		s.conclude(r, nil)
	}
	return nil
}

func (s *supervisor) extend(ends map[muster.AllocID]exec.BootTime) []muster.AllocID {
	var alive []muster.AllocID
	for _, id := range sortedIDs(ends) {
		if r := s.ranks[id]; r != nil && r.status.Phase != muster.AllocEnded && r.plan.Extend(ends[id], s.now()) {
			alive = append(alive, id)
		}
	}
	return alive
}

func (s *supervisor) list() []exec.Status {
	var list []exec.Status
	for _, id := range sortedIDs(s.ranks) {
		list = append(list, s.ranks[id].status)
	}
	return list
}

func (s *supervisor) forget(id muster.AllocID) {
	if r := s.ranks[id]; r != nil && r.status.Phase == muster.AllocEnded {
		delete(s.ranks, id)
	}
	s.m.forgetExit(id)
}

func (m *machine) forgetExit(id muster.AllocID) {
	m.exits = slices.DeleteFunc(m.exits, func(e exec.Status) bool { return e.Alloc == id })
}
