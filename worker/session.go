package worker

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// session is one stream to one server. The loop owns it; two goroutines carry messages.
type session struct {
	server  string
	out     chan *wire.FromWorker
	hangUp  context.CancelCauseFunc
	opened  time.Time
	welcome bool
	hello   map[muster.AllocID]muster.AllocPhase // what the hello said
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
		welcomed, err := a.converse(ctx, a.roster.pick())
		if ctx.Err() != nil {
			return
		}
		if welcomed {
			pause, a.complaint = firstPause, ""
		}
		a.complain(err)
		wait := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
		pause = min(2*pause, longPause)
	}
}

// complain says why there is no session, once for each reason in a row.
func (a *Agent) complain(err error) {
	if text := err.Error(); text != a.complaint {
		a.complaint = text
		a.log.Warn("no session with a server: trying on", "error", text)
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
		return fmt.Errorf("server %s: %w", server, err)
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
		a.post(parent, func() { a.receive(parent, s, m) })
	}
	hangUp(nil)
	sender.Wait()
	was := make(chan bool, 1)
	if a.post(parent, func() { a.sessionClosed(s); was <- s.welcome }) {
		welcomed = <-was // the loop has taken it: it will be done
	}
	return welcomed, err
}

// sessionOpened says hello: what this node is, and the complete list of what it runs or has not had acknowledged.
func (a *Agent) sessionOpened(s *session) {
	a.session = s
	s.opened = time.Now()
	s.hello = map[muster.AllocID]muster.AllocPhase{}
	reports := make([]muster.AllocReport, 0, len(a.tasks))
	for _, t := range a.inOrder() {
		r := t.report()
		s.hello[t.id] = r.Phase
		reports = append(reports, r)
	}
	node := a.node
	node.Session = crand.Text() // what was decided about an earlier registration must not hit this one
	s.send(&wire.FromWorker{Message: &wire.FromWorker_Hello{Hello: &wire.RegisterNode{
		Node: wire.NodeOf(&node), Seen: wire.VersionOf(a.seen), Allocs: wire.AllocReportsOf(reports),
	}}})
}

func (a *Agent) sessionClosed(s *session) {
	if a.session != s {
		return
	}
	a.session = nil
	a.flying = nil
	a.leases.hangUp()
}

// receive acts on one message of the current session. A server that doesn't keep to the protocol is left for another.
func (a *Agent) receive(ctx context.Context, s *session, m *wire.ToWorker) {
	if a.session != s {
		return
	}
	var err error
	switch {
	case m.GetWelcome() != nil:
		err = a.receiveWelcome(ctx, s, m.GetWelcome())
	case m.GetError() != nil:
		err = errors.New(m.GetError().GetMessage())
		if hint := m.GetError().GetHint(); hint != "" {
			err = fmt.Errorf("%w. %s", err, hint)
		}
	case !s.welcome:
		err = errors.New("it speaks before its welcome")
	case m.GetView() != nil:
		err = a.receiveView(m.GetView())
	case m.GetAck() != nil:
		a.receiveAck(m.GetAck().GetSeq())
	case m.GetRenewed() != nil:
		a.receiveRenewed(ctx, m.GetRenewed().GetSeq())
	}
	if err != nil {
		s.hangUp(err)
		a.sessionClosed(s) // nothing that it sent after this counts
	}
}

func (a *Agent) receiveWelcome(ctx context.Context, s *session, w *wire.Welcome) error {
	if err := a.store.join(w.GetCluster()); err != nil {
		a.log.Error("refused", "server", s.server, "error", err)
		return err
	}
	kill, err := wire.AllocIDs(w.GetKill())
	if err != nil {
		return err
	}
	if a.roster.learn(w.GetServers()) {
		if err := a.store.setServers(w.GetServers()); err != nil {
			a.log.Warn("the servers' addresses can't be kept", "error", err)
		}
	}
	s.welcome, a.checkpoints = true, w.GetCheckpoints()
	a.log.Info("session", "server", s.server, "node", w.GetNode(), "killed", len(kill))
	for id, phase := range s.hello {
		if t := a.tasks[id]; t != nil {
			t.acked = max(t.acked, phase)
		}
	}
	for _, id := range kill {
		if t := a.tasks[id]; t != nil {
			a.log.Info("not known to the servers, or ended for them: killing it", "allocation", id)
			t.gone = true
		}
	}
	a.renewAll(ctx)
	return nil
}

// receiveView takes in what shall run here. An older view than the newest seen is never acted on: a lagging server must not
// make a worker kill a healthy task, nor start an attempt twice.
func (a *Agent) receiveView(v *wire.View) error {
	version, err := v.GetVersion().Domain()
	if err != nil {
		return err
	}
	if version.Before(a.seen) {
		return fmt.Errorf("its view %s is older than %s, which this node has seen", version, a.seen)
	}
	gone, err := wire.AllocIDs(v.GetGone())
	if err != nil {
		return err
	}
	named := map[muster.AllocID]bool{}
	var fresh []muster.AllocID
	for _, d := range v.GetDesired() {
		id, err := d.GetAlloc().GetId().Domain()
		if err != nil || id.IsZero() {
			return errors.Join(errors.New("its view has an allocation without a number"), err)
		}
		named[id] = true
		t := a.tasks[id]
		if t == nil {
			t = &task{id: id, phase: muster.AllocPlaced}
			a.tasks[id], a.ordered = t, nil
		}
		if t.assignment == nil {
			fresh = append(fresh, id)
		}
		assignment, err := assignmentOf(d)
		switch {
		case err == nil:
			t.assignment = assignment
		case t.assignment == nil: // this program can't run it: another node's may
			t.broken = err.Error()
		default:
			a.log.Warn("a change of an allocation is not understood", "allocation", id, "error", err)
		}
	}
	for _, id := range gone {
		if t := a.tasks[id]; t != nil {
			t.gone = true
		}
	}
	if v.GetFull() {
		for id, t := range a.tasks {
			t.gone = t.gone || !named[id]
		}
	}
	a.seen = version
	if len(fresh) > 0 {
		a.renew(fresh, nil) // before anything is prepared: the first lease is on its way meanwhile
	}
	return nil
}
