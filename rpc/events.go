package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// eventBatch is how many events are looked up at once.
const eventBatch = 1000

// Events gives what happened, the oldest first; with follow it goes on with what happens.
func (s *Server) Events(r *wire.EventsRequest, stream grpc.ServerStreamingServer[wire.EventInfo]) error {
	return s.events(stream.Context(), r, func() error { return stream.SendHeader(nil) }, stream.Send)
}

// events shows each event that r asks for, after begin: the client sees that it is served, however long nothing happens.
func (s *Server) events(ctx context.Context, r *wire.EventsRequest, begin func() error, show func(*wire.EventInfo) error) error {
	state, err := s.read(ctx, r.Stale)
	if err != nil {
		return err
	}
	filter, err := state.EventFilterOf(r.Object, CallerFrom(ctx).User)
	if err != nil {
		return err
	}
	filter.Since = muster.Time(r.Since)
	wake, stop := s.local.Watch(watched(filter))
	defer stop()
	state = s.local.Read() // after the watch began: no event falls in between
	if err := begin(); err != nil {
		return err
	}
	index, nth := muster.Index(r.AfterIndex), r.AfterNth
	for {
		began := time.Now()
		for more := true; more; {
			var events []*wire.EventInfo
			events, index, nth = state.Events(filter, index, nth, eventBatch)
			for _, e := range events {
				if err := show(e); err != nil {
					return err
				}
			}
			more = len(events) == eventBatch
		}
		if !r.Follow {
			return nil
		}
		if err := rest(ctx, time.Since(began)); err != nil {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		state = s.local.Read()
	}
}

// watched are the rows whose changes may bring an event that filter takes; none: everything.
func watched(filter wire.EventFilter) ([]muster.JobID, []muster.NodeID) {
	switch {
	case filter.Job != 0:
		return []muster.JobID{filter.Job}, nil
	case filter.Node != 0:
		return nil, []muster.NodeID{filter.Node}
	}
	return nil, nil
}

// WhoAmI says for whom a server holds the caller.
func (s *Server) WhoAmI(ctx context.Context, _ *wire.WhoAmIRequest) (*wire.WhoAmIReply, error) {
	caller, self := CallerFrom(ctx), s.local.Status()
	return &wire.WhoAmIReply{User: caller.User, Agent: caller.Agent, Server: self.Name, Cluster: self.Cluster, Address: self.Address}, nil
}

// FollowEvents gives events to show, each once: when its server goes away it goes on at another one behind the last that was
// shown. An error of show ends it and is given back.
func (c *Client) FollowEvents(ctx context.Context, r *wire.EventsRequest, show func(*wire.EventInfo) error) error {
	request := &wire.EventsRequest{Object: r.Object, Stale: r.Stale, Since: r.Since, Follow: r.Follow, AfterIndex: r.AfterIndex, AfterNth: r.AfterNth}
	open := func(ctx context.Context, m wire.MusterClient) (grpc.ServerStreamingClient[wire.EventInfo], error) {
		return m.Events(ctx, request)
	}
	return follow(ctx, c, open, func(e *wire.EventInfo) error {
		if e.Index < request.AfterIndex || e.Index == request.AfterIndex && e.Nth <= request.AfterNth && e.Index != 0 {
			return nil // shown already
		}
		request.AfterIndex, request.AfterNth = e.Index, e.Nth
		return show(e)
	})
}

// WhoAmI says for whom the servers hold the caller.
func (c *Client) WhoAmI(ctx context.Context) (*wire.WhoAmIReply, error) {
	return call(ctx, c, &wire.WhoAmIRequest{}, wire.MusterClient.WhoAmI)
}
