package exec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster"
)

// rank is a task in its supervisor. Its goroutine, run, lives from Start until no process is left; the fields below are
// guarded by the supervisor's lock.
type rank struct {
	task    Task
	plan    Plan
	status  Status
	group   *cgroup // nil: none
	started bool    // run has begun, or will never
	oom     bool    // a process of it was killed for memory, so all of it goes
	stuck   BootTime
	since   uint64 // start time of its main process; 0 = not known
	wake    chan struct{}
}

func (r *rank) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *rank) live() bool { return r.status.Phase != muster.AllocEnded }

// stuckAfter is how long a killed process may take until it is named.
const stuckAfter = 2 * time.Second

// statWait bounds a look at the task's folder: it may lie on a file server that does not answer.
const statWait = 10 * time.Second

// prepare makes what the task needs. Errors are *PrepareError.
func (s *supervisor) prepareFiles(t *Task) error {
	refuse := func(format string, args ...any) error { return &PrepareError{Message: fmt.Sprintf(format, args...)} }
	for what, dir := range map[string]string{"task": t.TaskDir, "log": t.LogDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return refuse("the %s directory can't be made on %s: %v", what, s.config.Node, err)
		}
	}
	if t.Dir != "" {
		switch err := checkFolder(t.Dir); {
		case err == nil:
		case errors.Is(err, os.ErrNotExist):
			return refuse("folder %s does not exist on %s", t.Dir, s.config.Node)
		default:
			return refuse("folder %s on %s: %v", t.Dir, s.config.Node, err)
		}
	}
	if t.LogPath != "" {
		err := answered(func() error {
			f, err := openAlso(t.LogPath)
			if err == nil {
				err = f.Close()
			}
			return err
		})
		if err != nil {
			return refuse("logs.path %s on %s: %v", t.LogPath, s.config.Node, err)
		}
	}
	if t.Script != "" {
		if err := os.WriteFile(t.scriptPath(), []byte(t.Script), 0o700); err != nil {
			return refuse("the script can't be written on %s: %v", s.config.Node, err)
		}
	}
	return nil
}

func checkFolder(dir string) error {
	return answered(func() error {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = errors.New("it is not a folder")
		}
		if err == nil { // who may not enter it can't run there
			err = unix.Access(dir, unix.X_OK)
		}
		return err
	})
}

// answered looks at files, for as long as a file server may take.
func answered(look func() error) error {
	result := make(chan error, 1)
	go func() { result <- look() }() // ends when the file server answers
	timer := time.NewTimer(statWait)
	defer timer.Stop()
	select {
	case err := <-result:
		var path *os.PathError
		if errors.As(err, &path) {
			return path.Err
		}
		return err
	case <-timer.C:
		return fmt.Errorf("its file system does not answer within %s", statWait)
	}
}

// run is the life of a started task. forked is closed once it runs, or never will.
func (s *supervisor) run(r *rank, forked chan<- struct{}) {
	defer s.work.Done()
	opened := sync.OnceFunc(func() { close(forked) })
	defer opened()
	log, err := openLog(r.task.LogDir, r.task.Logs)
	if err != nil {
		s.failed(r, "the log can't be written: "+err.Error())
		return
	}
	if r.task.LogPath != "" {
		if log.also, err = openAlso(r.task.LogPath); err != nil { // Prepare could
			log.write(recordErr, fmt.Appendf(nil, "muster: logs.path: %v\n", err), time.Now())
		}
	}
	sp, err := s.enterSpace(r)
	if err != nil {
		s.endLog(r, log)
		s.failed(r, "namespaces on "+s.config.Node+": "+err.Error())
		return
	}
	main, pipes, end := s.launch(r, sp)
	if main == nil {
		s.leaveSpace(r, sp)
		s.endLog(r, log)
		s.conclude(r, end)
		return
	}
	var copying sync.WaitGroup
	copying.Add(2)
	go func() { defer copying.Done(); copyStream(log, recordOut, pipes.out) }()
	go func() { defer copying.Done(); copyStream(log, recordErr, pipes.err) }()
	opened()

	var e exit
	for running := true; running; {
		select {
		case e = <-main.exited:
			running = false
		case <-r.wake:
			s.act(r, main)
		}
	}
	s.clear(r, sp, main)
	s.drain(&copying, pipes)
	s.endLog(r, log)
	end = ending{code: e.status.ExitStatus(), peak: e.peak}
	if e.status.Signaled() {
		end.code, end.signal = 0, e.status.Signal()
	}
	if r.group != nil {
		end.ooms = r.group.ooms()
		if peak := r.group.peak(); peak > 0 {
			end.peak = peak
		}
	}
	s.conclude(r, end)
}

// launch forks the main process. Without one, the ending says why.
func (s *supervisor) launch(r *rank, sp *space) (*child, *outputs, ending) {
	p, code, refused := r.task.find()
	if refused != "" {
		return nil, nil, ending{code: code, refused: refused}
	}
	pipes, err := openOutputs()
	if err != nil {
		s.blame(r, muster.ClassNode, "pipes for the output on "+s.config.Node+": "+err.Error())
		return nil, nil, ending{}
	}
	if s.stopped(r) {
		pipes.closeChild()
		pipes.closeOwn()
		return nil, nil, ending{}
	}
	env := append(r.task.Env[:len(r.task.Env):len(r.task.Env)], markAlloc+"="+r.task.Alloc.String(), s.mark)
	main, err := launch(sp, r.group, tag(s.config.Instance, r.task.Alloc), &r.task, p, env, pipes)
	pipes.closeChild()
	if err == nil {
		facts, _ := readProcess(main.pid)
		s.mu.Lock()
		now := Now()
		r.plan.Begin(now)
		r.status.Phase, r.status.Running = muster.AllocRunning, time.Now()
		if r.plan.stop.Mode != muster.StopNone {
			r.status.Phase = muster.AllocStopping
		}
		r.status.Pid, r.status.PidStart = main.pid, facts.start
		r.since = facts.start
		s.publish(r)
		s.mu.Unlock()
		r.poke() // a stop may have come meanwhile
		return main, pipes, ending{}
	}
	pipes.closeOwn()
	var errno syscall.Errno
	switch dir := checkFolder(r.task.workDir()); {
	case dir != nil:
		s.blame(r, muster.ClassPrepare, fmt.Sprintf("folder %s on %s: %v", r.task.workDir(), s.config.Node, dir))
	case !errors.As(err, &errno) || errno == syscall.EAGAIN || errno == syscall.ENOMEM:
		s.blame(r, muster.ClassNode, "the process can't be started on "+s.config.Node+": "+err.Error())
	default:
		code, refused = refusal(p, err)
	}
	return nil, nil, ending{code: code, refused: refused}
}

// stopped says whether a task that has no process yet must not get one any more: it was asked to stop, or its lease ended,
// while it waited for something slow. Someone else may run in its place.
func (s *supervisor) stopped(r *rank) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.plan.look(Now())
	return r.plan.stop.Mode != muster.StopNone
}

// blame ends a task for a reason that is not its own, unless it was asked to stop before.
func (s *supervisor) blame(r *rank, class muster.Class, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.plan.Ask(muster.Stop{Mode: muster.StopKill, Class: r.plan.classOr(class), Reason: r.plan.reasonOr(reason)}, Now())
}

func (s *supervisor) failed(r *rank, reason string) {
	s.blame(r, muster.ClassNode, reason)
	s.conclude(r, ending{})
}

// act does what the plan says is due.
func (s *supervisor) act(r *rank, main *child) {
	for {
		s.mu.Lock()
		if r.oom {
			r.plan.kill(Now())
		}
		now := Now()
		todo := r.plan.Due(now)
		stop, termAt := r.plan.stop, r.plan.termAt
		if todo != ActNothing && r.status.Phase == muster.AllocRunning && stop.Mode != muster.StopNone {
			r.status.Phase = muster.AllocStopping
			s.publish(r)
		}
		s.mu.Unlock()
		switch todo {
		case ActNothing:
			return
		case ActSave:
			s.save(r, main, stop, termAt.Sub(now))
		case ActTerm:
			s.signal(r, main, r.task.killSignal(), true)
		case ActKill:
			s.kill(r, main)
			return
		}
	}
}

// save asks the task to save itself: the file first, so that who gets the signal finds it.
func (s *supervisor) save(r *rank, main *child, stop muster.Stop, left time.Duration) {
	if r.task.StopFile != "" {
		line := stopLine(stop.Class, time.Now().Add(left))
		err := os.MkdirAll(filepath.Dir(r.task.StopFile), 0o700)
		if err == nil {
			err = renameio.WriteFile(r.task.StopFile, []byte(line), 0o600, renameio.WithTempDir(filepath.Dir(r.task.StopFile)))
		}
		if err != nil {
			s.log.Warn("stop file not written", "alloc", r.task.Alloc, "error", err)
		}
	}
	if r.task.Checkpoint.Signal != "" {
		s.signal(r, main, r.task.Checkpoint.Signal, r.task.Checkpoint.To == muster.ToAll)
	}
}

// signal sends to the main process, or to all of the rank.
func (s *supervisor) signal(r *rank, main *child, name string, all bool) {
	sig, err := ParseSignal(name)
	if err != nil {
		s.log.Error("signal of a task that was checked before", "alloc", r.task.Alloc, "error", err)
		return
	}
	s.kids.signal(main.pid, sig)
	if !all {
		return
	}
	for _, p := range s.processes(r, main) {
		if p.pid != main.pid {
			killEach([]process{p}, sig)
		}
	}
}

// kill sends SIGKILL to all that is left of a rank, once, and names what does not go.
func (s *supervisor) kill(r *rank, main *child) {
	if r.group != nil {
		r.group.kill()
	} else {
		killEach(s.processes(r, main), syscall.SIGKILL)
	}
	s.kids.signal(main.pid, syscall.SIGKILL)
	s.name(r, func() []process { return s.processes(r, main) })
}

// name says in the status what keeps a killed task, from stuckAfter on.
func (s *supervisor) name(r *rank, left func() []process) {
	now := Now()
	s.mu.Lock()
	if r.stuck == 0 {
		r.stuck = now
	}
	long := now.Sub(r.stuck) >= stuckAfter
	s.mu.Unlock()
	if !long {
		return
	}
	list := left()
	if len(list) == 0 {
		return
	}
	message := named(list)
	s.mu.Lock()
	if r.status.Message != message {
		r.status.Phase, r.status.Message = muster.AllocStopping, message
		s.publish(r)
	}
	s.mu.Unlock()
}

// processes lists what is left of a rank.
func (s *supervisor) processes(r *rank, main *child) []process {
	if r.group != nil {
		return r.group.processes()
	}
	return marked(processes(), r.task.Alloc, s.marked(), main.pid, r.since)
}

func (s *supervisor) marked() string {
	_, value, _ := strings.Cut(s.mark, "=")
	return value
}

// clear ends everything that the main process left behind, and returns when nothing is left: the rank's resources are free
// then. The last rank of a job ends its namespaces, and with them what has left its group or taken off its mark.
func (s *supervisor) clear(r *rank, sp *space, main *child) {
	last := s.leaveSpace(r, sp)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if r.group != nil && r.group.empty() {
			return
		}
		var left []process
		if r.group != nil {
			left = r.group.processes()
		} else {
			all := processes()
			left = marked(all, r.task.Alloc, s.marked(), main.pid, r.since)
			if last && s.alone() {
				left = append(left, s.kids.strays(all)...)
			}
		}
		if len(left) == 0 {
			return
		}
		if r.group != nil {
			r.group.kill()
		} else {
			killEach(left, syscall.SIGKILL)
		}
		s.name(r, func() []process { return left })
		time.Sleep(pause)
	}
}

// drainWait is how long output is still read when no process is left: a pipe may have been handed to a stranger.
const drainWait = time.Second

func (s *supervisor) drain(copying *sync.WaitGroup, pipes *outputs) {
	done := make(chan struct{})
	go func() { copying.Wait(); close(done) }()
	timer := time.NewTimer(drainWait)
	defer timer.Stop()
	select {
	case <-done:
		pipes.closeOwn()
	case <-timer.C:
		pipes.closeOwn() // ends the reads
		<-done
	}
}

func (s *supervisor) endLog(r *rank, log *logWriter) {
	if err := log.complete(time.Now()); err != nil {
		s.log.Warn("log not completed", "alloc", r.task.Alloc, "error", err)
	}
}

// conclude makes the end of a rank known: on disk first.
func (s *supervisor) conclude(r *rank, end ending) {
	s.mu.Lock()
	status := r.status
	end.conclude(&status, &r.task, r.plan.stop)
	s.mu.Unlock()
	status.Phase, status.Ended = muster.AllocEnded, time.Now()
	if r.group != nil {
		r.group.remove(r.task.MilliCores)
	}
	if err := s.exits.write(&status); err != nil {
		s.log.Error("exit not written to disk", "alloc", r.task.Alloc, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.status = status
	r.group, r.task.Env, r.task.Script = nil, nil, "" // what is long is not needed any more
	s.publish(r)
	s.busy()
}
