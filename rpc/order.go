package rpc

import (
	"context"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// What people ask of jobs that wait or run, beside their end.

// onJobs makes one command about jobs.
func (s *Server) onJobs(ctx context.Context, requestID string, refs []*wire.JobRef,
	command func(h *wire.Header, jobs []uint64) *wire.Command) (*wire.NotesReply, error) {
	h, err := header(ctx, requestID)
	if err != nil {
		return nil, err
	}
	jobs, err := s.resolveAll(ctx, refs)
	if err != nil {
		return nil, err
	}
	return s.notes(ctx, command(h, jobs), jobs)
}

// Release lets held jobs go on.
func (s *Server) Release(ctx context.Context, r *wire.ReleaseRequest) (*wire.NotesReply, error) {
	return s.onJobs(ctx, r.RequestId, r.Jobs, func(h *wire.Header, jobs []uint64) *wire.Command {
		return &wire.Command{Command: &wire.Command_Release{Release: &wire.Release{Header: h, Jobs: jobs}}}
	})
}

// Hold keeps jobs that wait from starting.
func (s *Server) Hold(ctx context.Context, r *wire.HoldRequest) (*wire.NotesReply, error) {
	return s.onJobs(ctx, r.RequestId, r.Jobs, func(h *wire.Header, jobs []uint64) *wire.Command {
		return &wire.Command{Command: &wire.Command_Hold{Hold: &wire.Hold{Header: h, Jobs: jobs}}}
	})
}

// SetPriority changes the order of jobs in their queue.
func (s *Server) SetPriority(ctx context.Context, r *wire.SetPriorityRequest) (*wire.NotesReply, error) {
	if r.Priority < 0 || r.Priority > muster.MaxPriority {
		return nil, muster.Errorf(muster.KindUsage, "priority %d is not between 0 and %d", r.Priority, muster.MaxPriority)
	}
	return s.onJobs(ctx, r.RequestId, r.Jobs, func(h *wire.Header, jobs []uint64) *wire.Command {
		return &wire.Command{Command: &wire.Command_SetPriority{SetPriority: &wire.SetPriority{Header: h, Jobs: jobs, Priority: r.Priority}}}
	})
}

// Requeue asks placed jobs to save themselves and end; they start again at their old place.
func (s *Server) Requeue(ctx context.Context, r *wire.RequeueRequest) (*wire.NotesReply, error) {
	return s.onJobs(ctx, r.RequestId, r.Jobs, func(h *wire.Header, jobs []uint64) *wire.Command {
		return &wire.Command{Command: &wire.Command_Requeue{Requeue: &wire.Requeue{Header: h, Jobs: jobs}}}
	})
}

// Hold keeps jobs that wait from starting.
func (c *Client) Hold(ctx context.Context, r *wire.HoldRequest) (_ *wire.NotesReply, err error) {
	name(&r.RequestId)
	if r.Jobs, err = c.resolve(ctx, r.Jobs); err != nil {
		return nil, err
	}
	return call(ctx, c, r, wire.MusterClient.Hold)
}

// SetPriority changes the order of jobs in their queue.
func (c *Client) SetPriority(ctx context.Context, r *wire.SetPriorityRequest) (_ *wire.NotesReply, err error) {
	name(&r.RequestId)
	if r.Jobs, err = c.resolve(ctx, r.Jobs); err != nil {
		return nil, err
	}
	return call(ctx, c, r, wire.MusterClient.SetPriority)
}

// Requeue asks placed jobs to save themselves and end; they start again at their old place.
func (c *Client) Requeue(ctx context.Context, r *wire.RequeueRequest) (_ *wire.NotesReply, err error) {
	name(&r.RequestId)
	if r.Jobs, err = c.resolve(ctx, r.Jobs); err != nil {
		return nil, err
	}
	return call(ctx, c, r, wire.MusterClient.Requeue)
}

// RemoveNodes takes machines out of the cluster that are gone for good.
func (c *Client) RemoveNodes(ctx context.Context, r *wire.RemoveNodesRequest) (*wire.NotesReply, error) {
	name(&r.RequestId)
	return call(ctx, c, r, wire.MusterClient.RemoveNodes)
}

// LabelNode sets labels of a node over those of its agent's file, or takes such ones back.
func (c *Client) LabelNode(ctx context.Context, r *wire.LabelNodeRequest) (*wire.NotesReply, error) {
	name(&r.RequestId)
	return call(ctx, c, r, wire.MusterClient.LabelNode)
}
