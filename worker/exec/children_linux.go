package exec

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/musterhpc/muster"
)

// children forks and reaps. A supervisor reaps every child it has, orphans that it adopted too, in one place (a waiting thread
// for each task would cost more than the task); nothing else in it may wait for a child.
type children struct {
	single bool // wait for each child by itself: the process has children of others
	quit   chan struct{}
	done   chan struct{}

	mu      sync.Mutex
	known   map[int]chan exit
	early   map[int]exit // reaped while a fork was under way that did not know its pid yet
	forking int
}

// exit is how a child ended.
type exit struct {
	status syscall.WaitStatus
	peak   muster.Bytes // the largest resident set of it and of what it waited for
}

// child is a process that was forked and not yet waited for.
type child struct {
	pid    int
	exited chan exit // gets one
}

func newChildren(single bool) *children {
	return &children{single: single, quit: make(chan struct{}), done: make(chan struct{}), known: map[int]chan exit{}, early: map[int]exit{}}
}

// run reaps until stop.
func (c *children) run() {
	defer close(c.done)
	wake := make(chan os.Signal, 1)
	signal.Notify(wake, syscall.SIGCHLD)
	defer signal.Stop(wake)
	for {
		for c.reap() {
		}
		select {
		case <-wake:
		case <-c.quit:
			return
		}
	}
}

func (c *children) stop() {
	close(c.quit)
	<-c.done
}

// waitFor reaps one child.
func (c *children) waitFor(pid int) {
	var e exit
	for {
		if _, err := syscall.Wait4(pid, &e.status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	c.mu.Lock()
	exited := c.known[pid]
	delete(c.known, pid)
	c.mu.Unlock()
	exited <- e
}

// reap waits for one child that has ended. The lock is held so that signal never meets a pid that was given up.
func (c *children) reap() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e exit
	var use syscall.Rusage
	pid, err := syscall.Wait4(-1, &e.status, syscall.WNOHANG, &use)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	e.peak = muster.Bytes(use.Maxrss) * muster.KiB
	switch exited, ok := c.known[pid]; {
	case ok:
		delete(c.known, pid)
		exited <- e
	case c.forking > 0:
		c.early[pid] = e
	}
	return true
}

// fork starts a program. It may be called from a locked thread: then the child gets what that thread has of its own.
func (c *children) fork(path string, argv []string, attr *syscall.ProcAttr) (*child, error) {
	c.mu.Lock()
	c.forking++
	c.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forking--
	var made *child
	if err == nil {
		made = &child{pid: pid, exited: make(chan exit, 1)}
		if e, ok := c.early[pid]; ok {
			made.exited <- e
		} else {
			c.known[pid] = made.exited
			if c.single {
				go c.waitFor(pid) // ends with the child
			}
		}
	}
	if c.forking == 0 {
		clear(c.early)
	}
	return made, err
}

// signal sends sig to a child unless it was reaped already.
func (c *children) signal(pid int, sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[pid]; ok {
		_ = syscall.Kill(pid, sig)
	}
}

// strays lists those of all that this process adopted and does not know.
func (c *children) strays(all []process) []process {
	self := os.Getpid()
	var list []process
	for _, p := range all {
		if p.parent != self {
			continue
		}
		c.mu.Lock()
		_, ok := c.known[p.pid]
		ok = ok || c.forking > 0
		c.mu.Unlock()
		if !ok {
			list = append(list, p)
		}
	}
	return list
}
