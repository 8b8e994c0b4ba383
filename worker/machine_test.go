package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/exec"
)

// patient is how long tests wait for what must happen.
const patient = 10 * time.Second

// machine is a host in memory: its supervisor and its tasks outlive agents, as real ones do.
type machine struct {
	mu      sync.Mutex
	clock   exec.BootTime // stands still unless the test moves it
	tasks   map[muster.AllocID]*fakeTask
	kept    []exec.Status // exits on disk
	feeds   []*fakeSupervisor
	changed chan struct{} // closed and replaced at each change

	prepareFails string
	portTaken    string
	startFails   string
	silent       bool // the supervisor answers nothing
}

type fakeTask struct {
	task   exec.Task
	status exec.Status
	starts int
	stops  []muster.Stop
	killed int // past the supervisor
	end    exec.BootTime
}

func newMachine() *machine {
	return &machine{clock: exec.BootTime(1000 * time.Second), tasks: map[muster.AllocID]*fakeTask{}, changed: make(chan struct{})}
}

func (m *machine) changedLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// await waits until the condition holds; it is called with the machine locked.
func (m *machine) await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	late := time.After(patient)
	for {
		m.mu.Lock()
		ok, changed := condition(), m.changed
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("waited for: %s", what)
		}
	}
}

func (m *machine) pass(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = m.clock.Add(d)
}

// starts is how often each allocation's process was started.
func (m *machine) starts() map[muster.AllocID]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := map[muster.AllocID]int{}
	for id, t := range m.tasks {
		if t.starts > 0 {
			n[id] = t.starts
		}
	}
	return n
}

func (m *machine) awaitRunning(t testing.TB, id muster.AllocID) {
	t.Helper()
	m.await(t, fmt.Sprintf("%s running", id), func() bool {
		f := m.tasks[id]
		return f != nil && f.status.Phase == muster.AllocRunning
	})
}

// exit ends a process as it ends itself.
func (m *machine) exit(id muster.AllocID, code int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	class := muster.ClassNone
	if code != 0 {
		class = muster.ClassExit
	}
	m.endLocked(m.tasks[id], class, code, "")
}

func (m *machine) endLocked(f *fakeTask, class muster.Class, code int, message string) {
	f.status.Phase, f.status.Class, f.status.ExitCode, f.status.Message = muster.AllocEnded, class, code, message
	f.status.Ended = time.UnixMilli(9000)
	m.kept = append(m.kept, f.status)
	m.tellLocked(f)
}

func (m *machine) tellLocked(f *fakeTask) {
	for _, s := range m.feeds {
		s.queue = append(s.queue, f.status)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	m.changedLocked()
}

// killSupervisor is kill -9: its tasks die with it, unheard.
func (m *machine) killSupervisor() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks = map[muster.AllocID]*fakeTask{}
	for _, s := range slices.Clone(m.feeds) {
		s.closeLocked()
	}
}

// disconnect breaks the connections to the supervisor, which lives on with its tasks.
func (m *machine) disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range slices.Clone(m.feeds) {
		s.closeLocked()
	}
}

func (m *machine) supervise(context.Context) (Supervisor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent {
		return nil, errors.New("the supervisor does not answer")
	}
	s := &fakeSupervisor{machine: m, out: make(chan exec.Status), wake: make(chan struct{}, 1), done: make(chan struct{})}
	m.feeds = append(m.feeds, s)
	m.changedLocked()
	s.work.Go(s.run)
	return s, nil
}

func (m *machine) exits() []exec.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.kept)
}

func (m *machine) forgetExits(ids []muster.AllocID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = slices.DeleteFunc(m.kept, func(s exec.Status) bool { return slices.Contains(ids, s.Alloc) })
	m.changedLocked()
	return nil
}

func (m *machine) kill(_ context.Context, id muster.AllocID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks[id].killed++
	m.changedLocked()
	return nil
}

func (m *machine) now() exec.BootTime {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock
}

func (m *machine) portFree(port uint16) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.portTaken != "" && port != 0 {
		return errors.New(m.portTaken)
	}
	return nil
}

func (m *machine) fencing() string { return "strong" }

// fakeSupervisor is an agent's connection to the machine's supervisor.
type fakeSupervisor struct {
	machine *machine
	out     chan exec.Status
	wake    chan struct{}
	done    chan struct{}
	queue   []exec.Status // of the machine's lock
	work    sync.WaitGroup
}

func (s *fakeSupervisor) run() {
	defer close(s.out)
	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
		}
		s.machine.mu.Lock()
		queue := s.queue
		s.queue = nil
		s.machine.mu.Unlock()
		for _, status := range queue {
			select {
			case s.out <- status:
			case <-s.done:
				return
			}
		}
	}
}

func (s *fakeSupervisor) closeLocked() {
	if i := slices.Index(s.machine.feeds, s); i >= 0 {
		s.machine.feeds = slices.Delete(s.machine.feeds, i, i+1)
		close(s.done)
		s.machine.changedLocked()
	}
}

// with answers like a supervisor: not at all when it is silent or gone.
func (s *fakeSupervisor) with(ctx context.Context, f func(m *machine) error) error {
	s.machine.mu.Lock()
	silent := s.machine.silent
	s.machine.mu.Unlock()
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-s.done:
		return errors.New("the supervisor is gone")
	default:
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	return f(s.machine)
}

func (s *fakeSupervisor) Prepare(ctx context.Context, t exec.Task) error {
	return s.with(ctx, func(m *machine) error {
		if m.prepareFails != "" {
			return &exec.PrepareError{Message: m.prepareFails}
		}
		if m.tasks[t.Alloc] == nil {
			m.tasks[t.Alloc] = &fakeTask{task: t, end: t.LeaseEnd, status: exec.Status{Alloc: t.Alloc, Phase: muster.AllocReady}}
			m.changedLocked()
		}
		return nil
	})
}

func (s *fakeSupervisor) Start(ctx context.Context, id muster.AllocID) error {
	return s.with(ctx, func(m *machine) error {
		if m.startFails != "" {
			return errors.New(m.startFails)
		}
		f := m.tasks[id]
		f.starts++
		f.status.Phase, f.status.Pid, f.status.Running = muster.AllocRunning, 4711, time.UnixMilli(5000)
		m.tellLocked(f)
		return nil
	})
}

func (s *fakeSupervisor) Stop(ctx context.Context, id muster.AllocID, stop muster.Stop) error {
	return s.with(ctx, func(m *machine) error {
		f := m.tasks[id]
		f.stops = append(f.stops, stop)
		switch {
		case f.status.Phase == muster.AllocReady || stop.Mode == muster.StopKill:
			m.endLocked(f, stop.Class, 137, stop.Reason)
		case f.status.Phase == muster.AllocRunning:
			f.status.Phase = muster.AllocStopping
			m.tellLocked(f)
		}
		return nil
	})
}

func (s *fakeSupervisor) Extend(ctx context.Context, ends map[muster.AllocID]exec.BootTime) (alive []muster.AllocID, err error) {
	err = s.with(ctx, func(m *machine) error {
		for id, end := range ends {
			if f := m.tasks[id]; f != nil && f.status.Phase != muster.AllocEnded {
				f.end = max(f.end, end)
				alive = append(alive, id)
			}
		}
		m.changedLocked()
		return nil
	})
	return alive, err
}

func (s *fakeSupervisor) List(ctx context.Context) (list []exec.Status, err error) {
	err = s.with(ctx, func(m *machine) error {
		for _, id := range slices.SortedFunc(maps.Keys(m.tasks), func(x, y muster.AllocID) int { return cmp.Compare(x.Counter, y.Counter) }) {
			list = append(list, m.tasks[id].status)
		}
		return nil
	})
	return list, err
}

func (s *fakeSupervisor) Forget(ctx context.Context, ids []muster.AllocID) error {
	return s.with(ctx, func(m *machine) error {
		for _, id := range ids {
			delete(m.tasks, id)
			m.kept = slices.DeleteFunc(m.kept, func(s exec.Status) bool { return s.Alloc == id })
		}
		m.changedLocked()
		return nil
	})
}

func (s *fakeSupervisor) Events() <-chan exec.Status { return s.out }
func (s *fakeSupervisor) Done() <-chan struct{}      { return s.done }

func (s *fakeSupervisor) Close() error {
	s.machine.mu.Lock()
	s.closeLocked()
	s.machine.mu.Unlock()
	s.work.Wait()
	return nil
}
