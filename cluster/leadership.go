package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/cluster/duty"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// leadership is one term of this server as leader. Its duties run in its context, propose with its term, and are waited for
// when it ends.
type leadership struct {
	server *Server
	term   uint64
	ctx    context.Context
	cancel context.CancelCauseFunc
	wait   sync.WaitGroup
	ready  chan struct{} // closed once the state here has everything that was ever committed before this term

	leases    *duty.Leases
	renewed   chan struct{} // renewals have arrived
	planner   *planner
	suspicion chan struct{} // who is suspect has changed
	planLines lines         // of the schedule duty
}

var errLeadershipOver = errors.New("this server is no longer the leader")

const (
	dutyRetry    = 200 * time.Millisecond // after a duty's error
	barrierLimit = 5 * time.Second
)

// followNotices starts and stops leaderships. Raft's main loop blocks on its notices, so they are only counted by another
// goroutine: the newest says whether this server leads, and a changed count that leadership was lost in between.
func (s *Server) followNotices() {
	var mu sync.Mutex
	var rises int
	var up bool
	wake := make(chan struct{}, 1)
	s.wait.Go(func() {
		for {
			select {
			case <-s.life.Done():
				return
			case now := <-s.notify:
				mu.Lock()
				up = now
				if up {
					rises++
				}
				mu.Unlock()
				select {
				case wake <- struct{}{}:
				default:
				}
			}
		}
	})
	var current *leadership
	begun := 0
	end := func(cause error) {
		if current != nil {
			s.leadership.Store(nil)
			current.cancel(cause)
			current.wait.Wait()
			s.logger.Info("no longer leading", "term", current.term, "reason", cause)
			current = nil
		}
	}
	defer end(errStopping)
	for {
		select {
		case <-s.life.Done():
			return
		case <-wake:
		}
		s.leaderMayHaveMoved()
		mu.Lock()
		leads, count := up, rises
		mu.Unlock()
		if !leads || count != begun {
			end(errLeadershipOver)
		}
		if leads && current == nil {
			begun = count
			current = s.lead()
		}
	}
}

// lead begins a leadership in raft's current term.
func (s *Server) lead() *leadership {
	l := &leadership{server: s, term: s.raft.CurrentTerm(), ready: make(chan struct{}),
		renewed: make(chan struct{}, 1), suspicion: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancelCause(s.life)
	l.leases = duty.NewLeases(s.config.Clock.Boot())
	l.planner = newPlanner()
	l.planLines = lines{log: s.logger, every: time.Second}
	s.contact.lead(l.term)
	s.leadership.Store(l)
	l.wait.Go(l.run)
	return l
}

// run waits until everything committed before is applied here, then starts the duties.
func (l *leadership) run() {
	s := l.server
	for {
		err := l.await(s.raft.Barrier(barrierLimit))
		if err == nil && s.raft.CurrentTerm() == l.term {
			break
		}
		if l.ctx.Err() != nil {
			return
		}
		s.logger.Warn("the leader's barrier failed", "term", l.term, "error", err)
		if !l.pause(dutyRetry) {
			return
		}
	}
	s.logger.Info("leading", "term", l.term, "index", uint64(s.hub.newest().index))
	s.metrics.elected.Inc()
	close(l.ready)
	l.duty("name the cluster", l.nameCluster)
	l.duty("schedule", l.schedule)
	l.duty("leases", l.keepLeases)
	l.duty("back-offs", l.wakeBackoffs)
	l.duty("drains", l.endDrains)
	l.duty("start limits", l.endWaits)
	l.duty("purge", l.purge)
	l.duty("members", l.keepMembers)
	l.duty("tell", l.tell)
}

// duty runs f until it is done or the term ends; after an error it runs again.
func (l *leadership) duty(name string, f func(context.Context) error) {
	l.wait.Go(func() {
		for {
			err := f(l.ctx)
			if err == nil || l.ctx.Err() != nil {
				return
			}
			l.server.metrics.failed.WithLabelValues(name).Inc()
			l.server.logger.Warn("duty failed, and begins again", "duty", name, "term", l.term, "error", err)
			if !l.pause(dutyRetry) {
				return
			}
		}
	})
}

// await waits for a future of raft's, but not longer than the term.
func (l *leadership) await(future raft.Future) error { return await(l.ctx, future) }

// await waits for a future of raft's, but not longer than ctx: some never come back.
func await(ctx context.Context, future raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- future.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause waits; false: the term ended.
func (l *leadership) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// inContact waits for quorum contact later than since.
func (l *leadership) inContact(ctx context.Context, since Boot) error {
	ctx, stop := l.bind(ctx)
	defer stop()
	if err := l.server.contact.wait(ctx, l.term, since, l.server.askHeartbeat); err != nil {
		return unavailable("this server could not reach a majority of the servers: %v", err)
	}
	return nil
}

// bind gives a context that ends with ctx or with the term.
func (l *leadership) bind(ctx context.Context) (context.Context, func()) {
	bound, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return bound, func() { stop(); cancel(nil) }
}

// leading gives this server's leadership once its state is complete, or says that there is none.
func (s *Server) leading(ctx context.Context) (*leadership, error) {
	l := s.leadership.Load()
	if l == nil {
		return nil, unavailable("this server is not the leader; nothing was done")
	}
	select {
	case <-l.ready:
		return l, nil
	default:
	}
	select {
	case <-l.ready:
		return l, nil
	case <-l.ctx.Done():
		return nil, unavailable("this server is no longer the leader; nothing was done")
	case <-ctx.Done():
		return nil, unavailable("the new leader is not ready yet; nothing was done: %v", context.Cause(ctx))
	}
}

// propose commits duties of this term, together, and waits for all.
func (l *leadership) propose(ctx context.Context, commands ...state.Command) []outcome {
	out := make([]outcome, len(commands))
	flying := make([]*proposal, len(commands))
	for i, c := range commands {
		flying[i], out[i].err = l.server.proposer.start(wire.CommandOf(c))
	}
	for i, p := range flying {
		if p != nil {
			out[i] = p.wait(ctx)
		}
	}
	return out
}

// proposeOne commits one duty; a refusal is an error.
func (l *leadership) proposeOne(ctx context.Context, c state.Command) error {
	out := l.propose(ctx, c)[0]
	if out.err != nil {
		return out.err
	}
	if out.result.Err != nil {
		return out.result.Err
	}
	return nil
}

// Propose commits a request at the leader and waits until it is applied here.
func (s *Server) Propose(ctx context.Context, command *wire.Command) (*wire.ProposeReply, error) {
	if err := acceptable(command); err != nil {
		return nil, err
	}
	if s.raft.State() != raft.Leader {
		return nil, unavailable("this server is not the leader; nothing was done")
	}
	if hello := command.GetRegisterNode(); hello != nil {
		if err := s.nameTaken(hello.GetNode()); err != nil {
			return nil, err
		}
	}
	p, err := s.proposer.start(command)
	if err != nil {
		return nil, err
	}
	out := p.wait(ctx)
	if out.err != nil {
		return nil, out.err
	}
	return &wire.ProposeReply{Result: wire.ResultOf(&out.result), Index: uint64(out.index)}, nil
}

// nameTaken refuses the hello of a machine, or of a data directory, whose name another one bears that is there: they would take the
// session from each other for ever. One whose predecessor is gone is let in as soon as that one is silent.
func (s *Server) nameTaken(hello *wire.Node) error {
	l := s.leadership.Load()
	row, known := s.hub.newest().snapshot.NodeNamed(hello.GetName())
	if l == nil || !known || row.Hardware == hello.GetHardware() && row.Instance == hello.GetInstance() ||
		!l.leases.Speaks(s.config.Clock.Boot(), row) {
		return nil
	}
	return muster.Errorf(muster.KindConflict, "another machine, at %s, is called %s, and it is there", row.Address, row.Name).
		WithHint("Give this one another name in its agent's file; or stop the other one")
}

// acceptable refuses what must not reach the log: what servers could not decode (they would stop at it), and duties, which
// only the leader itself decides.
func acceptable(command *wire.Command) error {
	c, err := command.Domain()
	if err != nil {
		return muster.Errorf(muster.KindInvalid, "the request can't be read: %v", err)
	}
	if state.MayBeAsked(c) {
		return nil
	}
	return muster.Errorf(muster.KindDenied, "%T is decided by the leader and can't be asked for", c)
}
