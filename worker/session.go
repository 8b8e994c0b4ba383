package worker

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/step"
)

// session is one stream to one server. The loop owns it; two goroutines carry messages.
type session struct {
	server string
	out    chan *wire.FromWorker
	hangUp context.CancelCauseFunc
	talk   *step.Session
}

// outbox is how many messages may wait for a stream; a loop that would wait for one would renew no lease.
const outbox = 256

// send never waits. A stream that takes nothing any more is given up.
func (s *session) send(m *wire.FromWorker) {
	select {
	case s.out <- m:
	default:
		s.hangUp(errors.New("it takes no messages"))
	}
}

// roster is the servers to try, in turn.
type roster struct {
	mu   sync.Mutex
	list []string
	next int
}

func newRoster(lists ...[]string) *roster {
	r := &roster{}
	for _, l := range lists {
		r.learn(l)
	}
	if len(r.list) > 0 {
		r.next = rand.IntN(len(r.list)) // workers spread over the servers
	}
	return r
}

// learn adds addresses, and says whether one was new.
func (r *roster) learn(list []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.list)
	for _, address := range list {
		if address != "" && !slices.Contains(r.list, address) {
			r.list = append(r.list, address)
		}
	}
	return len(r.list) > before
}

// pick gives the next address in turn; "" when none is known.
func (r *roster) pick() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		return ""
	}
	r.next = (r.next + 1) % len(r.list)
	return r.list[r.next]
}

// The pauses between attempts to reach a server.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// connect keeps one session at a time until ctx ends.
func (a *Agent) connect(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; {
		server := a.roster.pick()
		welcomed, err := a.converse(ctx, server)
		if ctx.Err() != nil {
			return
		}
		if welcomed {
			pause, a.complaint = firstPause, ""
		}
		a.complain(server, err)
		wait := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
		pause = min(2*pause, longPause)
	}
}

// complain says why there is no session, once for each reason in a row, whichever server gave it.
func (a *Agent) complain(server string, err error) {
	if text := err.Error(); text != a.complaint {
		a.complaint = text
		a.log.Warn("no session with a server: trying on", "server", server, "error", text)
	}
}

// converse holds one session with a server, until its stream ends or the loop hangs up.
func (a *Agent) converse(parent context.Context, server string) (welcomed bool, err error) {
	if server == "" {
		return false, errors.New("no server's address is known: set join")
	}
	ctx, hangUp := context.WithCancelCause(parent)
	defer hangUp(nil)
	explain := func(err error) error {
		if cause := context.Cause(ctx); cause != nil && cause != context.Canceled {
			err = cause
		}
		return wire.FromStatus(err)
	}
	conn, closer, err := a.cfg.Dial(ctx, server)
	if err != nil {
		return false, explain(err)
	}
	defer closer.Close()
	stream, err := wire.NewWorkersClient(conn).Session(ctx)
	if err != nil {
		return false, explain(err)
	}
	s := &session{server: server, out: make(chan *wire.FromWorker, outbox), hangUp: hangUp}
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-s.out:
				if err := stream.Send(m); err != nil {
					return // the receiver learns why
				}
			}
		}
	})
	a.post(parent, func() { a.sessionOpened(s) })
	for {
		m, problem := stream.Recv()
		if problem != nil {
			err = explain(problem)
			break
		}
		a.post(parent, func() { a.receive(s, m) })
	}
	hangUp(nil)
	sender.Wait()
	was := make(chan bool, 1)
	if a.post(parent, func() { a.sessionClosed(s); was <- s.talk.Welcomed() }) {
		welcomed = <-was // the loop has taken it: it will be done
	}
	return welcomed, err
}

// sessionOpened says hello.
func (a *Agent) sessionOpened(s *session) {
	a.session = s
	node := a.node
	a.sessions++
	node.Session, node.Number = crand.Text(), a.sessions // what was decided about an earlier registration must not hit this one
	s.talk = a.machine.SessionOpened(&node)
}

func (a *Agent) sessionClosed(s *session) {
	a.machine.SessionClosed(s.talk)
	if a.session == s {
		a.session = nil
	}
}

// receive acts on one message of the current session. A server that doesn't keep to the protocol is left for another.
func (a *Agent) receive(s *session, m *wire.ToWorker) {
	if a.session != s {
		return
	}
	var err error
	if w := m.GetWelcome(); w != nil {
		err = a.meet(s, w)
	}
	if err == nil {
		err = a.machine.Receive(s.talk, m)
	}
	if err != nil {
		s.hangUp(err)
		a.sessionClosed(s) // nothing that it sent after this counts
	}
}

// meet looks whose server it is, and remembers the others it names.
func (a *Agent) meet(s *session, w *wire.Welcome) error {
	if err := a.store.join(w.GetCluster()); err != nil {
		a.log.Error("refused", "server", s.server, "error", err)
		return err
	}
	if a.roster.learn(w.GetServers()) {
		if err := a.store.setServers(w.GetServers()); err != nil {
			a.log.Warn("the servers' addresses can't be kept", "error", err)
		}
	}
	a.checkpoints = w.GetCheckpoints()
	a.log.Info("session", "server", s.server, "node", w.GetNode(), "killed", len(w.GetKill()))
	return nil
}
