package rpc

import (
	"context"
	"sync"
)

// batcher is natural batching: while one call is under way, the requests that come in gather for the next. Nothing waits when
// nothing is under way, and a call made for a request always begins after that request came in.
type batcher[In, Out any] struct {
	server *Server
	call   func(context.Context, []In) ([]Out, error) // an answer for each; ends when the server stops

	mu      sync.Mutex
	next    *batch[In, Out] // gathers; nil: nothing waits
	running bool
}

type batch[In, Out any] struct {
	in   []In
	done chan struct{}
	out  []Out
	err  error
}

func newBatcher[In, Out any](s *Server, call func(context.Context, []In) ([]Out, error)) *batcher[In, Out] {
	return &batcher[In, Out]{server: s, call: call}
}

// do gives the answer to in, or ctx's error when that is done first; the call may then still happen.
func (b *batcher[In, Out]) do(ctx context.Context, in In) (Out, error) {
	b.mu.Lock()
	if b.next == nil {
		b.next = &batch[In, Out]{done: make(chan struct{})}
	}
	mine, place := b.next, len(b.next.in)
	mine.in = append(mine.in, in)
	if !b.running {
		b.running = true
		b.server.running.Go(b.run)
	}
	b.mu.Unlock()

	var none Out
	select {
	case <-mine.done:
		if mine.err != nil {
			return none, mine.err
		}
		return mine.out[place], nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// run makes calls until nothing waits any more.
func (b *batcher[In, Out]) run() {
	for {
		b.mu.Lock()
		now := b.next
		b.next = nil
		if now == nil {
			b.running = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		now.out, now.err = b.call(b.server.closing, now.in)
		close(now.done)
	}
}
