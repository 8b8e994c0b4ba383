package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// WatchJobs gives each job to show at once, then at each change, and ends when all have ended. When its server goes away it
// goes on at another one, without a repeat; while there is none it tries on as the client's patience allows. An error of show
// ends it and is given back.
func (c *Client) WatchJobs(ctx context.Context, r *wire.WatchJobsRequest, show func(*wire.JobInfo) error) error {
	refs, err := c.resolve(ctx, r.Jobs)
	if err != nil {
		return err
	}
	r = &wire.WatchJobsRequest{Jobs: refs}
	shown := make(map[uint64]*wire.JobInfo)
	open := func(ctx context.Context, m wire.MusterClient) (grpc.ServerStreamingClient[wire.JobInfo], error) {
		return m.WatchJobs(ctx, r)
	}
	return follow(ctx, c, open, func(job *wire.JobInfo) error {
		last := shown[job.Id]
		if last != nil && (versionOf(job.Version).Before(versionOf(last.Version)) || sameJob(last, job)) {
			return nil // a server that lags behind the one before, or what was shown already
		}
		shown[job.Id] = job
		return show(job)
	})
}

// FollowLogs gives the chunks of a job's logs to show, each byte once: when its server goes away it goes on at the byte where
// it was. Chunks that end a log, or carry only a note, are given too. An error of show ends it and is given back.
func (c *Client) FollowLogs(ctx context.Context, r *wire.LogsRequest, show func(*wire.LogChunk) error) error {
	refs, err := c.resolve(ctx, []*wire.JobRef{r.Job})
	if err != nil {
		return err
	}
	request := &wire.LogsRequest{Job: refs[0], Ranks: r.Ranks, Group: r.Group, Failed: r.Failed, Attempt: r.Attempt, Follow: r.Follow,
		LastLines: r.LastLines, Since: r.Since, Positions: r.Positions}
	positions := make(map[muster.AllocID]*wire.LogPosition)
	for _, p := range r.Positions {
		positions[allocID(p.Alloc)] = p
	}
	open := func(ctx context.Context, m wire.MusterClient) (grpc.ServerStreamingClient[wire.LogChunk], error) {
		request.Positions = request.Positions[:0:0]
		for _, p := range positions {
			request.Positions = append(request.Positions, p)
		}
		return m.Logs(ctx, request)
	}
	return follow(ctx, c, open, func(chunk *wire.LogChunk) error {
		if len(chunk.Data) > 0 || chunk.End {
			id := allocID(chunk.Alloc)
			p := positions[id]
			switch {
			case p == nil:
				p = &wire.LogPosition{Alloc: chunk.Alloc}
				positions[id] = p
			case p.End || !chunk.End && chunk.Next <= p.Offset:
				return nil // told already
			}
			p.Offset, p.End = max(p.Offset, chunk.Next), chunk.End
		}
		return show(chunk)
	})
}

// errShow marks an error of the one who is shown things.
type errShow struct{ error }

// follow reads a stream to its end, opening it again, at another server if need be, when it breaks.
func follow[T any](ctx context.Context, c *Client,
	open func(context.Context, wire.MusterClient) (grpc.ServerStreamingClient[T], error), show func(*T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for broken := false; ; broken = true {
		stream, err := connect(ctx, c, broken, open)
		if err != nil {
			return err
		}
		err = readAll(stream, show)
		var mine errShow
		switch {
		case err == nil:
			return nil
		case errors.As(err, &mine):
			return mine.error
		case ctx.Err() != nil:
			return ctx.Err()
		case muster.KindOf(err) != muster.KindUnavailable:
			return err
		}
	}
}

// connect opens a stream at a server that serves it.
func connect[T any](ctx context.Context, c *Client, broken bool,
	open func(context.Context, wire.MusterClient) (grpc.ServerStreamingClient[T], error)) (stream grpc.ServerStreamingClient[T], err error) {
	o := c.outage()
	defer o.end()
	streamCtx := ctx // longer than the patience with which it is opened
	err = o.try(ctx, func(ctx context.Context, address string) error {
		conn, err := c.connections.to(address)
		if err != nil {
			return err
		}
		attempt, cancel := context.WithCancel(streamCtx)
		giveUp := context.AfterFunc(ctx, cancel)
		late := time.AfterFunc(o.limit(), cancel)
		opened, err := open(attempt, wire.NewMusterClient(conn))
		if err == nil {
			err = served(opened)
		}
		inTime := late.Stop() && giveUp()
		if err == nil && !inTime {
			err = context.Canceled
		}
		if err != nil {
			cancel()
			return unavailableWhenGivenUp(wire.FromStatus(err))
		}
		stream = &openStream[T]{opened, cancel}
		return nil
	})
	if err == nil && broken {
		c.options.Notify("reconnected")
	}
	return stream, err
}

// served waits for the header, which comes when the server has begun to serve the stream; a refusal comes without one.
func served[T any](stream grpc.ServerStreamingClient[T]) error {
	header, err := stream.Header()
	if header == nil && err == nil {
		if _, err = stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		}
	}
	return err
}

// openStream releases its context when it has ended.
type openStream[T any] struct {
	grpc.ServerStreamingClient[T]
	cancel context.CancelFunc
}

func (s *openStream[T]) Recv() (*T, error) {
	m, err := s.ServerStreamingClient.Recv()
	if err != nil {
		s.cancel()
	}
	return m, err
}

func readAll[T any](stream grpc.ServerStreamingClient[T], show func(*T) error) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return wire.FromStatus(err)
		}
		if err := show(m); err != nil {
			return errShow{err}
		}
	}
}
