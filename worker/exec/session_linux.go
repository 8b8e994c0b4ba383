package exec

import (
	"bufio"
	"net"
	"os"
	"sync"
	"time"

	"github.com/musterhpc/muster"
)

// session is one agent's connection.
type session struct {
	conn   *net.UnixConn
	events *feed // only put and take are used

	mu      sync.Mutex
	answers []*frame
}

const (
	greetWait = 2 * time.Second
	sendWait  = 10 * time.Second // an agent that takes nothing for so long is let go; it connects again
)

// attend serves one connection.
func (s *supervisor) attend(conn *net.UnixConn) {
	defer s.work.Done()
	defer conn.Close()
	uid, pid, err := peer(conn)
	if err != nil || uid != os.Geteuid() && uid != 0 {
		s.log.Warn("refused a connection", "uid", uid, "pid", pid, "error", err)
		return
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	_ = conn.SetDeadline(time.Now().Add(greetWait))
	f, err := readFrame(r)
	if err != nil || f.Hello == nil {
		return
	}
	own := &hello{Protocol: protocolVersion, Pid: s.self.pid, Start: s.self.start, Boot: bootID()}
	if writeFrame(conn, &frame{Hello: own}) != nil || f.Hello.Protocol != protocolVersion {
		return
	}
	_ = conn.SetDeadline(time.Time{})

	c := &session{conn: conn, events: newFeed()}
	s.mu.Lock()
	if s.quitting {
		s.mu.Unlock()
		return
	}
	s.sessions[c] = struct{}{}
	s.busy()
	s.mu.Unlock()
	done, sent := make(chan struct{}), make(chan struct{})
	go func() { defer close(sent); c.send(done) }()
	var requests sync.WaitGroup
	for {
		f, err := readFrame(r)
		if err != nil {
			break
		}
		requests.Add(1)
		go func() {
			defer requests.Done()
			answer := s.handle(f)
			answer.ID = f.ID
			c.answer(answer)
			if f.Method == methodQuit && answer.Failure == nil {
				close(s.quit) // handle lets one through
			}
		}()
	}
	close(done)
	<-sent
	s.mu.Lock()
	delete(s.sessions, c)
	s.busy()
	s.mu.Unlock()
	requests.Wait()
}

func (c *session) answer(f *frame) {
	c.mu.Lock()
	c.answers = append(c.answers, f)
	c.mu.Unlock()
	c.events.poke()
}

func (c *session) take() (*frame, bool) {
	c.mu.Lock()
	if len(c.answers) > 0 {
		f := c.answers[0]
		c.answers = c.answers[1:]
		c.mu.Unlock()
		return f, true
	}
	c.mu.Unlock()
	if status, ok := c.events.take(); ok {
		return &frame{Event: &status}, true
	}
	return nil, false
}

// send writes what is to be told until done, and then what is left.
func (c *session) send(done <-chan struct{}) {
	for last := false; ; {
		f, ok := c.take()
		if !ok && last {
			return
		}
		if !ok {
			select {
			case <-c.events.wake:
			case <-done:
				last = true
			}
			continue
		}
		_ = c.conn.SetWriteDeadline(time.Now().Add(sendWait))
		if writeFrame(c.conn, f) != nil {
			c.conn.Close() // ends the reading too
			return
		}
	}
}

// handle answers a request.
func (s *supervisor) handle(f *frame) *frame {
	answer := &frame{}
	var err error
	switch f.Method {
	case methodPrepare:
		if f.Task == nil {
			err = muster.Errorf(muster.KindInvalid, "prepare without a task")
			break
		}
		err = s.prepare(*f.Task)
	case methodStart, methodStop:
		switch {
		case f.Alloc == nil || f.Method == methodStop && f.Stop == nil:
			err = muster.Errorf(muster.KindInvalid, "%s without an allocation number, or without saying how", f.Method)
		case f.Method == methodStart:
			err = s.start(*f.Alloc)
		default:
			err = s.stop(*f.Alloc, *f.Stop)
		}
	case methodExtend:
		answer.Allocs = s.extend(f.Leases)
	case methodList:
		answer.Tasks = s.list()
	case methodForget:
		err = s.forget(f.Allocs)
	case methodQuit:
		err = s.mayQuit()
	default:
		err = muster.Errorf(muster.KindInvalid, "this supervisor does not know the request %q", f.Method)
	}
	answer.Failure = failureOf(err)
	return answer
}
