package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster"
)

const (
	lookEvery = 100 * time.Millisecond // at the clocks, while tasks live
	oomEvery  = 5                      // looks: at what was killed for memory
	idleExit  = time.Minute            // without tasks and without an agent
	stopWait  = 10 * time.Second       // for the tasks' ends when the supervisor itself is told to stop
)

// supervisor is the process that runs tasks.
type supervisor struct {
	config   SupervisorConfig
	log      hclog.Logger
	self     identity
	mark     string
	groups   *cgroups // nil: none
	isolated bool
	kids     *children
	exits    *exitLog
	look     chan struct{} // a task lives that the clocks must be looked at for
	quit     chan struct{}
	spacing  sync.Mutex     // one making of namespaces at a time: two ranks of a job must find the same
	work     sync.WaitGroup // goroutines of ranks and connections

	mu       sync.Mutex
	ranks    map[muster.AllocID]*rank
	spaces   map[spaceKey]*space
	sessions map[*session]struct{}
	idle     BootTime // since when nothing was to be done; 0 = something is
	quitting bool
}

type spaceKey struct {
	job     muster.JobID
	attempt uint32
}

// Supervise is the supervisor process. It serves until an agent tells it to quit, or nothing was to be done for a minute.
// When ctx ends it kills its tasks and returns once they are gone.
func Supervise(ctx context.Context, c SupervisorConfig) error {
	c, err := c.filled()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.RunDir, 0o700); err != nil {
		return err
	}
	lock, err := lockRunDir(c.RunDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	s := &supervisor{
		config: c, log: c.Logger, self: ownIdentity(), kids: newChildren(false), look: make(chan struct{}, 1), quit: make(chan struct{}),
		ranks: map[muster.AllocID]*rank{}, spaces: map[spaceKey]*space{}, sessions: map[*session]struct{}{}, idle: Now(),
	}
	if s.exits, err = openExitLog(c.StateDir, s.self); err != nil {
		return err
	}
	defer s.exits.close()
	s.mark = c.mark(s.self)
	raiseLimits()
	// Orphans of tasks come to us where there is no pid namespace, so that they are found.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	go s.kids.run()
	defer s.kids.stop()
	s.adapt()
	defer s.groups.leave()
	listener, err := listen(c.RunDir)
	if err != nil {
		return err
	}
	s.log.Info("supervisor ready", "pid", s.self.pid, "pid_namespaces", s.isolated, "cgroups", s.groups.describe())
	return s.serve(ctx, listener)
}

// adapt finds out what the host allows.
func (s *supervisor) adapt() {
	if s.config.Plain {
		return
	}
	if err := trySpace(s.kids, s.mark); err != nil {
		s.log.Warn("no pid namespaces: tasks are fenced weakly", "error", err)
	} else {
		s.isolated = true
	}
	groups, err := tryCgroups(s.config, s.self)
	if err == nil {
		err = groups.open()
	}
	if err != nil {
		s.log.Warn("no cgroups: memory and cores are not limited", "error", err)
		return
	}
	s.groups = groups
}

func (g *cgroups) leave() {
	if g != nil {
		g.close()
	}
}

func (g *cgroups) describe() string {
	if g == nil {
		return "none"
	}
	return fmt.Sprintf("v%d", g.version)
}

// lockRunDir makes sure that there is one supervisor in a run directory.
func lockRunDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, muster.Errorf(muster.KindConflict, "another supervisor serves %s", dir)
	}
	return f, nil
}

func listen(dir string) (*net.UnixListener, error) {
	path := filepath.Join(dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err // we hold the lock: whoever made it is gone
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// raiseLimits raises, as far as the host allows, what tasks inherit: open files, and locked memory for RDMA.
func raiseLimits() {
	const files = 1 << 20
	for _, want := range []unix.Rlimit{{Cur: files, Max: files}, {}} {
		var have unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &have) != nil {
			break
		}
		if want.Cur == 0 || have.Max >= want.Max {
			want = unix.Rlimit{Cur: min(files, have.Max), Max: have.Max}
		}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &want) == nil {
			break
		}
	}
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited) != nil {
		var have unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &have) == nil {
			have.Cur = have.Max
			_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &have)
		}
	}
}

// serve accepts agents and looks at the clocks until it is time to end.
func (s *supervisor) serve(ctx context.Context, listener *net.UnixListener) error {
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			conn, err := listener.AcceptUnix()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				s.log.Warn("accept", "error", err)
				time.Sleep(lookEvery)
				continue
			}
			s.work.Add(1)
			go s.attend(conn)
		}
	}()
	idle := time.NewTicker(idleExit / 4)
	defer idle.Stop()
	var look *time.Ticker
	var looking <-chan time.Time
	for running, n := true, 0; running; {
		select {
		case <-ctx.Done():
			running = false
		case <-s.quit:
			running = false
		case <-idle.C:
			running = !s.idleFor(idleExit)
		case <-s.look:
			if looking == nil {
				look = time.NewTicker(lookEvery)
				looking = look.C
			}
		case <-looking:
			n++
			if !s.lookAtClocks(n%oomEvery == 0) {
				look.Stop()
				looking = nil
			}
		}
	}
	if look != nil {
		look.Stop()
	}
	listener.Close()
	<-accepting
	s.endAll()
	return nil
}

// idleFor says whether nothing was to be done for d, and if so lets no more begin.
func (s *supervisor) idleFor(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quitting = s.idle != 0 && Now().Sub(s.idle) >= d
	return s.quitting
}

// busy notes whether there is something to do; called with the lock whenever that may have changed.
func (s *supervisor) busy() {
	if len(s.sessions) > 0 || s.living() > 0 {
		s.idle = 0
		return
	}
	if s.idle == 0 {
		s.idle = Now()
	}
}

func (s *supervisor) living() int {
	n := 0
	for _, r := range s.ranks {
		if r.live() {
			n++
		}
	}
	return n
}

// lookAtClocks wakes the tasks that something is due for, and says whether any lives.
func (s *supervisor) lookAtClocks(ooms bool) bool {
	now := Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	any := false
	for _, r := range s.ranks {
		if !r.live() {
			continue
		}
		any = true
		if !r.started {
			ahead := r.plan
			if ahead.Due(now) == ActKill {
				r.plan = ahead
				s.endUnstarted(r)
			}
			continue
		}
		if ooms && !r.oom && r.group != nil && r.group.ooms() > 0 {
			r.oom = true
		}
		ahead := r.plan
		if r.oom || ahead.Due(now) != ActNothing {
			r.poke()
		}
	}
	return any
}

// endUnstarted ends a task that was prepared only; called with the lock.
func (s *supervisor) endUnstarted(r *rank) {
	r.started = true
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		if err := CloseLog(r.task.LogDir); err != nil {
			s.log.Warn("log not completed", "alloc", r.task.Alloc, "error", err)
		}
		s.conclude(r, ending{})
	}()
}

// endAll kills what runs and lets the agents go.
func (s *supervisor) endAll() {
	s.mu.Lock()
	s.quitting = true
	for _, r := range s.ranks {
		if !r.live() {
			continue
		}
		r.plan.Ask(muster.Stop{Mode: muster.StopKill, Class: r.plan.classOr(muster.ClassNode),
			Reason: r.plan.reasonOr("the supervisor on " + s.config.Node + " was told to stop")}, Now())
		if r.started {
			r.poke()
		} else {
			s.endUnstarted(r)
		}
	}
	s.mu.Unlock()
	deadline := time.NewTimer(stopWait)
	defer deadline.Stop()
	again := time.NewTicker(lookEvery / 10)
	defer again.Stop()
	for waiting := true; waiting; {
		s.mu.Lock()
		left := s.living()
		s.mu.Unlock()
		if left == 0 {
			break
		}
		select {
		case <-deadline.C: // it is in a device's hands: its init dies with us
			waiting = false
		case <-again.C:
			s.lookAtClocks(false)
		}
	}
	s.mu.Lock()
	for c := range s.sessions {
		_ = c.conn.CloseRead() // it ends when what is to be told has been sent
	}
	left := s.living()
	s.mu.Unlock()
	if left == 0 {
		s.work.Wait()
	}
}

// publish tells the agents of r's newest status; called with the lock.
func (s *supervisor) publish(r *rank) {
	for c := range s.sessions {
		c.events.put(r.status)
	}
}

// enterSpace gives the namespaces of the rank's job on this node, made by its first.
func (s *supervisor) enterSpace(r *rank) (*space, error) {
	key := spaceKey{r.task.Job, r.task.Attempt}
	s.spacing.Lock()
	defer s.spacing.Unlock()
	s.mu.Lock()
	if sp := s.spaces[key]; sp != nil {
		sp.ranks++ // in one go with finding it: its last rank may be leaving
		s.mu.Unlock()
		return sp, nil
	}
	s.mu.Unlock()
	sp, err := newSpace(s.kids, s.isolated, s.mark)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	sp.ranks = 1
	s.spaces[key] = sp
	s.mu.Unlock()
	return sp, nil
}

// leaveSpace counts a rank out. The last one ends the namespaces and everything in them; it returns once that is done.
func (s *supervisor) leaveSpace(r *rank, sp *space) (last bool) {
	s.mu.Lock()
	sp.ranks--
	last = sp.ranks == 0
	if last {
		delete(s.spaces, spaceKey{r.task.Job, r.task.Attempt})
	}
	s.mu.Unlock()
	if !last {
		return false
	}
	sp.end()
	if sp.init != nil {
		s.awaitInit(r, sp)
	}
	sp.close()
	return true
}

// awaitInit waits until the kernel has ended the init, which it does last in a namespace.
func (s *supervisor) awaitInit(r *rank, sp *space) {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		select {
		case <-sp.init.exited:
			return
		case <-again.C:
			s.name(r, func() []process {
				if r.group != nil {
					return r.group.processes()
				}
				return marked(processes(), r.task.Alloc, s.marked(), 0, r.since)
			})
		}
	}
}

// alone says whether no task runs any more: then what is left among our children is nobody's.
func (s *supervisor) alone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spaces) == 0
}
