package exec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/musterhpc/muster"
)

// Supervisor is an agent's connection to a supervisor process. Its tasks don't depend on it: they go on when it is closed.
type Supervisor struct {
	conn  *net.UnixConn
	hello hello
	done  chan struct{}
	feed  *feed
	work  sync.WaitGroup

	writing sync.Mutex // frames must not mix

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan *frame
}

// startWait bounds how long a new supervisor may take until it answers.
const startWait = 10 * time.Second

// StartSupervisor runs binary as a supervisor that outlives this process (own session, no terminal, its log in runDir), and
// waits until it answers. One that already lives in runDir is used instead.
func StartSupervisor(binary, runDir string, c SupervisorConfig) (*Supervisor, error) {
	c.RunDir = runDir
	c, err := c.filled()
	if err != nil {
		return nil, err
	}
	if s, err := DialSupervisor(c.RunDir); err == nil {
		return s, nil
	}
	if err := os.MkdirAll(c.RunDir, 0o700); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	path := filepath.Join(c.RunDir, "supervisor.log")
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	process, err := os.StartProcess(binary, append([]string{binary}, c.args()...), &os.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []*os.File{null, log, log}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start a supervisor: %w", err)
	}
	exited := make(chan *os.ProcessState, 1)
	go func() { // ends with the supervisor; while this process lives it must be reaped
		state, _ := process.Wait()
		exited <- state
	}()
	deadline := time.NewTimer(startWait)
	defer deadline.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		s, err := DialSupervisor(c.RunDir)
		if err == nil {
			return s, nil
		}
		again := time.NewTimer(pause)
		select {
		case state := <-exited:
			again.Stop()
			return nil, fmt.Errorf("the supervisor ended at once (%v): see %s", state, path)
		case <-deadline.C:
			again.Stop()
			_ = process.Kill()
			return nil, fmt.Errorf("the supervisor does not answer after %s: %w: see %s", startWait, err, path)
		case <-again.C:
		}
	}
}

// DialSupervisor connects to the supervisor of runDir, as an agent that was started again does. An error that is
// fs.ErrNotExist or ECONNREFUSED: there is none.
func DialSupervisor(runDir string) (*Supervisor, error) {
	path := filepath.Join(runDir, socketName)
	c, err := net.DialTimeout("unix", path, 2*time.Second)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UnixConn)
	s := &Supervisor{conn: conn, done: make(chan struct{}), feed: newFeed(), waiting: map[uint64]chan *frame{}}
	if err := s.greet(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("supervisor at %s: %w", path, err)
	}
	s.work.Add(2)
	go s.read()
	go func() { defer s.work.Done(); s.feed.run(s.done) }()
	return s, nil
}

func (s *Supervisor) greet() error {
	uid, pid, err := peer(s.conn)
	if err != nil {
		return err
	}
	if uid != os.Geteuid() && uid != 0 {
		return muster.Errorf(muster.KindDenied, "it runs as uid %d, not as ours", uid)
	}
	if err := s.conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if err := writeFrame(s.conn, &frame{Hello: &hello{Protocol: protocolVersion}}); err != nil {
		return err
	}
	f, err := readFrame(s.conn)
	if err != nil {
		return fmt.Errorf("process %d does not answer: %w", pid, err)
	}
	if f.Hello == nil || f.Hello.Protocol != protocolVersion {
		return muster.Errorf(muster.KindConflict, "process %d does not speak version %d of the protocol", pid, protocolVersion)
	}
	s.hello = *f.Hello
	return s.conn.SetDeadline(time.Time{})
}

func (s *Supervisor) read() {
	defer s.work.Done()
	r := bufio.NewReaderSize(s.conn, 64<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			break
		}
		switch {
		case f.Event != nil:
			s.feed.put(*f.Event)
		case f.ID != 0:
			s.mu.Lock()
			answer := s.waiting[f.ID]
			delete(s.waiting, f.ID)
			s.mu.Unlock()
			if answer != nil {
				answer <- f
			}
		}
	}
	s.conn.Close()
	close(s.done)
}

// errGone is every request's answer once the supervisor is gone.
var errGone = muster.Errorf(muster.KindUnavailable, "the supervisor is gone")

func (s *Supervisor) call(ctx context.Context, request *frame) (*frame, error) {
	answer := make(chan *frame, 1)
	s.mu.Lock()
	s.last++
	request.ID = s.last
	s.waiting[request.ID] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, request.ID)
		s.mu.Unlock()
	}()
	s.writing.Lock()
	err := s.conn.SetWriteDeadline(time.Now().Add(5 * time.Second)) // a stopped supervisor doesn't hold the agent up
	if err == nil {
		err = writeFrame(s.conn, request)
	}
	s.writing.Unlock()
	if err != nil {
		s.conn.Close() // half a frame may be out: this connection is of no more use
		return nil, errGone
	}
	select {
	case f := <-answer:
		return f, f.Failure.error()
	case <-s.done:
		select {
		case f := <-answer:
			return f, f.Failure.error()
		default:
			return nil, errGone
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Prepare makes the task's directories and its cgroup. A task that can't be set up gives a *PrepareError. Preparing a known
// allocation again does nothing.
func (s *Supervisor) Prepare(ctx context.Context, t Task) error {
	_, err := s.call(ctx, &frame{Method: methodPrepare, Task: &t})
	return err
}

// Start forks the task. An allocation is never forked twice: starting it again, or after a stop, does nothing.
func (s *Supervisor) Start(ctx context.Context, id muster.AllocID) error {
	_, err := s.call(ctx, &frame{Method: methodStart, Alloc: &id})
	return err
}

// Stop asks the task to end; the graces run in the supervisor. A request no stronger than one before does nothing.
func (s *Supervisor) Stop(ctx context.Context, id muster.AllocID, stop muster.Stop) error {
	_, err := s.call(ctx, &frame{Method: methodStop, Alloc: &id, Stop: &stop})
	return err
}

// Extend moves the ends of leases forward and gives the tasks that have not ended and whose lease holds, among those asked.
func (s *Supervisor) Extend(ctx context.Context, ends map[muster.AllocID]BootTime) ([]muster.AllocID, error) {
	request := &frame{Method: methodExtend}
	for id, end := range ends {
		request.Leases = append(request.Leases, leaseEnd{Alloc: id, End: end})
	}
	f, err := s.call(ctx, request)
	if err != nil {
		return nil, err
	}
	return f.Allocs, nil
}

// List gives every task that it knows, in order of allocation number.
func (s *Supervisor) List(ctx context.Context) ([]Status, error) {
	f, err := s.call(ctx, &frame{Method: methodList})
	if err != nil {
		return nil, err
	}
	return f.Tasks, nil
}

// Forget drops ended tasks and their exits on disk; prepared ones that never started too. Running ones are refused.
func (s *Supervisor) Forget(ctx context.Context, ids []muster.AllocID) error {
	_, err := s.call(ctx, &frame{Method: methodForget, Allocs: ids})
	return err
}

// Quit lets the supervisor end. It refuses while a task has not ended.
func (s *Supervisor) Quit(ctx context.Context) error {
	_, err := s.call(ctx, &frame{Method: methodQuit})
	return err
}

// Events gives the newest status of each task that changed since the last was taken. It is closed after Done.
func (s *Supervisor) Events() <-chan Status { return s.feed.out }

// Done is closed when the connection is lost: the supervisor died, or Close was called.
func (s *Supervisor) Done() <-chan struct{} { return s.done }

// Pid is the supervisor's process.
func (s *Supervisor) Pid() int { return s.hello.Pid }

// Close ends the connection and waits for its goroutines. The supervisor and its tasks go on.
func (s *Supervisor) Close() error {
	err := s.conn.Close()
	s.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// NoSupervisor says whether an error of DialSupervisor means that there is none, rather than a silent one.
func NoSupervisor(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// feed hands over the newest status of each allocation, in the order in which they first changed.
type feed struct {
	out  chan Status
	wake chan struct{}

	mu     sync.Mutex
	order  []muster.AllocID
	newest map[muster.AllocID]Status
}

func newFeed() *feed {
	return &feed{out: make(chan Status), wake: make(chan struct{}, 1), newest: map[muster.AllocID]Status{}}
}

func (f *feed) put(s Status) {
	f.mu.Lock()
	if _, ok := f.newest[s.Alloc]; !ok {
		f.order = append(f.order, s.Alloc)
	}
	f.newest[s.Alloc] = s
	f.mu.Unlock()
	f.poke()
}

func (f *feed) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *feed) take() (Status, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.order) == 0 {
		return Status{}, false
	}
	id := f.order[0]
	f.order = f.order[1:]
	s := f.newest[id]
	delete(f.newest, id)
	return s, true
}

func (f *feed) run(done <-chan struct{}) {
	defer close(f.out)
	for {
		s, ok := f.take()
		if !ok {
			select {
			case <-f.wake:
				continue
			case <-done:
				return
			}
		}
		select {
		case f.out <- s:
		case <-done:
			return
		}
	}
}

func sortStatuses(list []Status) {
	slices.SortFunc(list, func(a, b Status) int {
		if a.Alloc.Less(b.Alloc) {
			return -1
		}
		return 1
	})
}
