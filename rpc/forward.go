package rpc

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// The way to the leader, for everything that only it can do. While there is none, or it can't be reached, or leadership was
// lost on the way, the request is held and tried again: the same request, which is safe because a request is idempotent (by its
// id, or because it says what is rather than what to do).

// noLeader begins the message of a request that was held in vain.
const noLeader = "no leader: "

// leadership is one leader's time as this server sees it.
type leadership struct {
	ctx     context.Context // done at the next change of leader
	end     context.CancelFunc
	address string // "" = nobody leads, or it is not known where
	self    bool
}

func (l *leadership) known() bool { return l.self || l.address != "" }

// leaderRouter knows the current leadership.
type leaderRouter struct {
	server *Server

	mu      sync.Mutex
	current *leadership
}

func newLeaderRouter(s *Server) *leaderRouter { return &leaderRouter{server: s} }

// leadership gives the present one.
func (r *leaderRouter) leadership() *leadership {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.server
	if r.current != nil && r.current.ctx.Err() == nil {
		if r.current.known() {
			return r.current
		}
		if address, self := s.local.Leader(); address == "" && !self {
			return r.current
		}
		r.current.end()
	}
	changed := s.local.LeaderChanged() // before Leader: a change in between ends this leadership at once
	ctx, cancel := context.WithCancel(s.closing)
	l := &leadership{ctx: ctx, end: cancel}
	l.address, l.self = s.local.Leader()
	r.current = l
	s.running.Go(func() {
		defer cancel()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	})
	return l
}

// atLeader does a thing at the leader, here or there, and tries again for as long as limit (and ctx) allows while no leader
// does it. Here and there do the same and must bear being done twice. The last reason is in the error.
func (r *leaderRouter) atLeader(ctx context.Context, limit time.Duration,
	here func(context.Context) error, there func(context.Context, wire.PeersClient) error) error {
	held, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		l := r.leadership()
		err := r.once(held, l, here, there)
		if err == nil || muster.KindOf(err) != muster.KindUnavailable {
			return err
		}
		if r.server.closing.Err() != nil {
			return errStopping
		}
		wait := time.NewTimer(pause)
		var changed <-chan struct{}
		if l.ctx.Err() == nil {
			changed = l.ctx.Done()
		}
		select {
		case <-wait.C:
		case <-changed:
		case <-held.Done():
			wait.Stop()
			return muster.Errorf(muster.KindUnavailable, noLeader+"%v", err)
		}
		wait.Stop()
	}
}

// once tries under one leadership; its end gives the call up, since a leader that hangs never answers.
func (r *leaderRouter) once(ctx context.Context, l *leadership,
	here func(context.Context) error, there func(context.Context, wire.PeersClient) error) error {
	if l.self {
		return unavailableWhenGivenUp(here(ctx))
	}
	if !l.known() {
		return muster.Errorf(muster.KindUnavailable, "none is elected")
	}
	conn, err := r.server.servers.to(l.address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	if err := there(ctx, wire.NewPeersClient(conn)); err != nil {
		return unavailableWhenGivenUp(wire.FromStatus(err))
	}
	return nil
}

// unavailableWhenGivenUp makes a call that was given up, or timed out, what it is to the caller: of unknown outcome.
func unavailableWhenGivenUp(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return muster.Errorf(muster.KindUnavailable, "it did not answer in time")
	}
	return err
}

// propose commits a command, wherever the leader is, and waits until this server has applied it too, so that the caller reads
// its own write here. A refusal by the state is an error.
func (s *Server) propose(ctx context.Context, command *wire.Command) (*wire.Result, error) {
	reply, err := s.commit(ctx, command)
	if err != nil {
		return nil, err
	}
	if refused := reply.Result.GetErr(); refused != nil {
		return nil, refused.Domain()
	}
	return reply.Result, nil
}

// commit is propose without a look at the result.
func (s *Server) commit(ctx context.Context, command *wire.Command) (*wire.ProposeReply, error) {
	var reply *wire.ProposeReply
	request := &wire.ProposeRequest{Command: command}
	forwarded := false
	err := s.leader.atLeader(ctx, hold, func(ctx context.Context) (err error) {
		reply, err = s.local.Propose(ctx, command)
		forwarded = false
		return err
	}, func(ctx context.Context, leader wire.PeersClient) (err error) {
		reply, err = leader.Propose(ctx, request)
		forwarded = true
		return err
	})
	if err != nil {
		return nil, err
	}
	if forwarded {
		// The command is committed whatever happens here: a wait that fails only means that this server lags.
		wait, cancel := context.WithTimeout(ctx, hold)
		defer cancel()
		_ = s.local.WaitApplied(wait, muster.Index(reply.Index))
	}
	return reply, nil
}

// read gives the local state, at least as new as everything acknowledged before the call; stale: as it is.
func (s *Server) read(ctx context.Context, stale bool) (*wire.Reader, error) {
	if !stale {
		ctx, cancel := context.WithTimeout(ctx, hold)
		defer cancel()
		index, err := s.reads.do(ctx, struct{}{})
		if err != nil {
			return nil, noLeaderWhenGivenUp(err)
		}
		if err := s.local.WaitApplied(ctx, index); err != nil {
			return nil, lagging(err)
		}
	}
	return s.local.Read(), nil
}

func noLeaderWhenGivenUp(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return muster.Errorf(muster.KindUnavailable, noLeader+"none confirmed itself in time").
			WithHint("What this server knows may be read with --stale")
	}
	return err
}

func lagging(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return muster.Errorf(muster.KindUnavailable, "this server lags behind the leader")
	}
	return err
}

// readIndexOnce asks the leader once for all reads that wait: the index is later than each one's arrival.
func (s *Server) readIndexOnce(ctx context.Context, waiting []struct{}) ([]muster.Index, error) {
	var index muster.Index
	err := s.leader.atLeader(ctx, hold, func(ctx context.Context) (err error) {
		index, err = s.local.ReadIndex(ctx)
		return err
	}, func(ctx context.Context, leader wire.PeersClient) error {
		reply, err := leader.ReadIndex(ctx, &wire.ReadIndexRequest{})
		index = muster.Index(reply.GetIndex())
		return err
	})
	answers := make([]muster.Index, len(waiting))
	for i := range answers {
		answers[i] = index
	}
	return answers, err
}

// renewLimit bounds how long renewals are tried: a worker sends its next one soon.
const renewLimit = 3 * time.Second

// renewOnce passes on the renewals that wait, in one call. They are answered only once this server's state is as new as the
// leader's was: one that lags would let go on what was cancelled, and its workers must find another.
func (s *Server) renewOnce(ctx context.Context, waiting []*wire.NodeRenew) ([]bool, error) {
	batch := &wire.RenewBatch{Renewals: waiting}
	var reply *wire.RenewBatchReply
	err := s.leader.atLeader(ctx, renewLimit, func(ctx context.Context) (err error) {
		reply, err = s.local.Renew(ctx, batch)
		return err
	}, func(ctx context.Context, leader wire.PeersClient) (err error) {
		reply, err = leader.Renew(ctx, batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(reply.Ok) != len(waiting) {
		return nil, muster.Errorf(muster.KindError, "the leader answered %d of %d renewals", len(reply.Ok), len(waiting))
	}
	ctx, cancel := context.WithTimeout(ctx, renewLimit)
	defer cancel()
	if err := s.local.WaitApplied(ctx, muster.Index(reply.Index)); err != nil {
		return nil, lagging(err)
	}
	return reply.Ok, nil
}

// explain asks the leader why a job stands where it does.
func (s *Server) explain(ctx context.Context, limit time.Duration, job muster.JobID) (*wire.WhyReply, error) {
	var reply *wire.WhyReply
	err := s.leader.atLeader(ctx, limit, func(ctx context.Context) (err error) {
		reply, err = s.local.Explain(ctx, job)
		return err
	}, func(ctx context.Context, leader wire.PeersClient) (err error) {
		reply, err = leader.Explain(ctx, &wire.WhyRequest{Job: &wire.JobRef{Id: uint64(job)}})
		return err
	})
	return reply, err
}

// suspectsLimit bounds how long a list of nodes waits for what only the leader knows.
const suspectsLimit = 500 * time.Millisecond

// suspects gives what the leader holds against nodes, by number. Nothing when it can't be asked: a list without is still one.
func (s *Server) suspects(ctx context.Context) map[uint32]string {
	var reply *wire.SuspectsReply
	err := s.leader.atLeader(ctx, suspectsLimit, func(ctx context.Context) (err error) {
		reply, err = s.local.Suspects(ctx)
		return err
	}, func(ctx context.Context, leader wire.PeersClient) (err error) {
		reply, err = leader.Suspects(ctx, &wire.SuspectsRequest{}, grpc.WaitForReady(false))
		return err
	})
	if err != nil {
		return nil
	}
	suspects := make(map[uint32]string, len(reply.Nodes))
	for _, n := range reply.Nodes {
		suspects[n.Node] = n.Reason
	}
	return suspects
}
