package exec

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// space is where the ranks of one job and attempt live on this node: where the host allows it, pid, mount and ipc
// namespaces of their own. It belongs to one OS thread, which is locked to its goroutine and ends with it. That thread forks
// everything, so that the init, forked with PDEATHSIG, dies with the supervisor (the signal is tied to the thread), and with
// it the kernel kills all that is in its pid namespace.
type space struct {
	kids  *children
	calls chan func()
	ended chan struct{} // the thread is gone
	init  *child        // nil: no namespaces
	hold  int           // write end of the init's standard input: it ends with us even if PDEATHSIG came too late
	ranks int           // started and not ended; guarded by the supervisor's lock
}

// initScript is pid 1 of a space: it waits, reaps orphans (dash does so in jobs, bash by itself) and ends when its standard
// input does. A read that a dying orphan interrupted is told from the end of the input by c. Signals do nothing to pid 1.
const initScript = `trap "" HUP INT QUIT USR1 USR2 ALRM TERM
trap c=1 CHLD
while :; do
  c=
  read _
  [ "$c" ] || exit
  jobs
done >/dev/null 2>&1`

// newSpace makes one. mark goes into the init's environment, so that a stale one can be found.
func newSpace(kids *children, isolated bool, mark string) (*space, error) {
	s := &space{kids: kids, calls: make(chan func()), ended: make(chan struct{}), hold: -1}
	ready := make(chan error)
	go s.thread(isolated, mark, ready)
	if err := <-ready; err != nil {
		return nil, err
	}
	return s, nil
}

func (s *space) thread(isolated bool, mark string, ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The process's first thread can't end before the process does, and would keep the namespaces for ever: leave it,
		// and hold it until another thread has this work.
		other := make(chan error)
		go s.thread(isolated, mark, other)
		err := <-other
		runtime.UnlockOSThread()
		ready <- err
		return
	}
	// Never unlocked: the thread, which is in namespaces of its own, ends with this goroutine.
	defer close(s.ended)
	if isolated {
		if err := s.isolate(mark); err != nil {
			ready <- err
			return
		}
	}
	ready <- nil
	for call := range s.calls {
		call()
	}
}

// isolate gives the calling thread namespaces and forks their init.
func (s *space) isolate(mark string) error {
	if err := unix.Unshare(unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	// What the host mounts later comes in, what is mounted here does not go out.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(pipe[0])
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(pipe[1])
		return err
	}
	defer unix.Close(null)
	s.hold = pipe[1]
	s.init, err = s.kids.fork("/bin/sh", []string{"muster-init", "-c", initScript}, &syscall.ProcAttr{
		Dir: "/", Env: []string{mark}, Files: []uintptr{uintptr(pipe[0]), uintptr(null), uintptr(null)},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		unix.Close(s.hold)
		return fmt.Errorf("start the init of a pid namespace: %w", err)
	}
	if err := errors.Join(s.mountProc(), mountShm()); err != nil {
		s.end()
		<-s.init.exited
		return err
	}
	return nil
}

// mountProc mounts the /proc of the new pid namespace. The calling thread itself is not in it (only its children are), so the
// kernel is told which; one before 6.18 can't be, and needs a process inside to do it.
func (s *space) mountProc() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if unix.Mount("proc", "/proc", "proc", flags, fmt.Sprintf("pidns=/proc/%d/ns/pid", s.init.pid)) == nil {
		return nil
	}
	for _, path := range []string{"/bin/mount", "/usr/bin/mount"} {
		mount, err := s.kids.fork(path, []string{"mount", "-t", "proc", "-o", "nosuid,nodev,noexec", "proc", "/proc"}, &syscall.ProcAttr{
			Dir: "/", Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			continue
		}
		if e := <-mount.exited; e.status != 0 {
			return fmt.Errorf("mount the namespace's /proc: %s ended with %d", path, e.status.ExitStatus())
		}
		return nil
	}
	return errors.New("mount the namespace's /proc: there is no mount command")
}

// mountShm gives the job a /dev/shm of its own, of half the machine's memory, so that what it leaves there goes with it.
func mountShm() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("muster", "/dev/shm", "tmpfs", flags, "mode=1777,size=50%"); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return nil
}

// do runs f on the space's thread.
func (s *space) do(f func()) {
	done := make(chan struct{})
	s.calls <- func() { defer close(done); f() }
	<-done
}

// end kills what is in the namespaces; init.exited tells when nothing is left there, for the kernel lets the init go last.
func (s *space) end() {
	if s.init != nil {
		s.kids.signal(s.init.pid, syscall.SIGKILL)
	}
	if s.hold >= 0 {
		unix.Close(s.hold)
		s.hold = -1
	}
}

// close lets the thread go, after end.
func (s *space) close() {
	close(s.calls)
	<-s.ended
}
