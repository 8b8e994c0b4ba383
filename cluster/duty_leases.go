package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/cluster/duty"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// keepLeases answers renewals as quorum contact comes, and ends what has run out.
func (l *leadership) keepLeases(ctx context.Context) error {
	s := l.server
	ticker := time.NewTicker(duty.LeaseTick)
	defer ticker.Stop()
	ends := make(chan struct{}, 1) // capacity 1: one batch of ends is proposed at a time
	for {
		contact, changed := s.contact.value(l.term)
		now := s.config.Clock.Boot()
		l.leases.Settle(now, contact, s.hub.newest().snapshot)
		if !l.leases.Waiting() {
			changed = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			continue
		case <-l.renewed:
			continue
		case <-ticker.C:
		}
		before := l.leases.Silent()
		contact, _ = s.contact.value(l.term)
		due := l.leases.Tick(s.config.Clock.Boot(), contact, s.hub.newest().snapshot)
		if !maps.Equal(before, l.leases.Silent()) {
			select {
			case l.suspicion <- struct{}{}:
			default:
			}
		}
		if len(due) == 0 {
			continue
		}
		select {
		case ends <- struct{}{}:
			l.wait.Go(func() {
				l.endLeases(ctx, due)
				<-ends
			})
		default: // the same are due at the next tick
		}
	}
}

// endLeases proposes what has run out. What the state refuses (the node has begun another session) is looked at anew.
func (l *leadership) endLeases(ctx context.Context, ends []*state.EndLeases) {
	commands := make([]state.Command, len(ends))
	for i, end := range ends {
		end.Term = l.term
		commands[i] = end
		l.server.logger.Info("leases have run out", "node", end.Node, "allocations", len(end.Allocs), "lost", end.Lost)
	}
	for i, out := range l.propose(ctx, commands...) {
		if out.err == nil && out.result.Err == nil {
			l.server.metrics.expired.Add(float64(len(ends[i].Allocs)))
		}
		if out.err == nil && out.result.Err != nil {
			l.server.logger.Info("the state did not end leases", "node", ends[i].Node, "reason", out.result.Err)
			l.leases.Refused(ends[i])
		}
	}
}

// Renew takes renewals at the leader. It answers once quorum contact is later than the call's arrival: from then on no other
// leader can have freed what the answer lets go on.
func (s *Server) Renew(ctx context.Context, batch *wire.RenewBatch) (*wire.RenewBatchReply, error) {
	arrived := s.config.Clock.Boot()
	l, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	r := l.leases.Arrive(arrived, s.hub.newest().snapshot, batch)
	select {
	case l.renewed <- struct{}{}:
	default:
	}
	s.askHeartbeat()
	select {
	case ok := <-r.Answer:
		s.metrics.answered(ok)
		return &wire.RenewBatchReply{Ok: ok, Index: uint64(s.hub.newest().index)}, nil
	case <-l.ctx.Done():
		return nil, unavailable("this server is no longer the leader; the leases were not renewed")
	case <-ctx.Done():
		return nil, unavailable("this server could not reach a majority of the servers: %v", context.Cause(ctx))
	}
}

// NodeSilent says that the stream of a node's session broke: it is suspect soon unless it comes back. Only the leader acts on
// it; another server passes it on as a renewal with silent set.
func (s *Server) NodeSilent(node muster.NodeID, session string) {
	if l := s.leadership.Load(); l != nil {
		l.leases.Broke(s.config.Clock.Boot(), s.hub.newest().snapshot, node, session)
	}
}

// Suspects gives, at the leader, the nodes that get no new work because they are silent.
func (s *Server) Suspects(ctx context.Context) (*wire.SuspectsReply, error) {
	l, err := s.leading(ctx)
	if err != nil {
		return nil, err
	}
	reply := &wire.SuspectsReply{}
	silent := l.leases.Silent()
	for _, id := range slices.Sorted(maps.Keys(silent)) {
		reply.Nodes = append(reply.Nodes, &wire.Suspect{Node: uint32(id), Reason: silent[id]})
	}
	return reply, nil
}
