package rpc

import (
	"context"
	"net/http"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// ListQueues lists the queues, with who holds what there, and the scheduling policy.
func (s *Server) ListQueues(ctx context.Context, r *wire.ListQueuesRequest) (*wire.ListQueuesReply, error) {
	state, err := s.read(ctx, r.Stale)
	if err != nil {
		return nil, err
	}
	return state.Queues(), nil
}

// ApplyQueues replaces the tree and the policy, or says whether that would be refused.
func (s *Server) ApplyQueues(ctx context.Context, r *wire.ApplyQueuesRequest) (*wire.NotesReply, error) {
	h, err := header(ctx, r.RequestId)
	if err != nil {
		return nil, err
	}
	queues := make([]muster.QueueSpec, len(r.Queues))
	for i, x := range r.Queues {
		if queues[i], err = x.Domain(); err != nil {
			return nil, err
		}
	}
	policy, err := r.Policy.Domain()
	if err != nil {
		return nil, err
	}
	if err := muster.CheckQueues(queues, &policy); err != nil {
		return nil, err
	}
	if r.DryRun {
		state, err := s.read(ctx, false)
		if err != nil {
			return nil, err
		}
		if err := state.TakesQueues(queues, policy); err != nil {
			return nil, err
		}
		return &wire.NotesReply{}, nil
	}
	return s.notes(ctx, &wire.Command{Command: &wire.Command_ApplyQueues{ApplyQueues: &wire.ApplyQueues{
		Header: h, Queues: r.Queues, Policy: r.Policy}}}, nil)
}

func (s *Server) httpListQueues(w http.ResponseWriter, r *request) error {
	reply, err := s.ListQueues(r.Context(), &wire.ListQueuesRequest{Stale: r.stale})
	if err != nil {
		return err
	}
	items, err := wire.QueuesJSON(reply.Queues)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, wire.ItemsOf(items))
	return nil
}

// ListQueues lists the queues and the scheduling policy.
func (c *Client) ListQueues(ctx context.Context, r *wire.ListQueuesRequest) (*wire.ListQueuesReply, error) {
	return call(ctx, c, r, wire.MusterClient.ListQueues)
}

// ApplyQueues replaces the tree and the policy.
func (c *Client) ApplyQueues(ctx context.Context, r *wire.ApplyQueuesRequest) (*wire.NotesReply, error) {
	name(&r.RequestId)
	return call(ctx, c, r, wire.MusterClient.ApplyQueues)
}
