package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// Batching is natural: while entries are in flight the next one gathers, so a lone command waits for nothing and many share
// an fsync.
const (
	maxFlights   = 2         // entries in flight: while one is on the leader's disk the one before is on the followers'
	entryAim     = 256 << 10 // bytes of an entry after which it takes no more commands
	maxCommand   = 4 << 20   // bytes of a single command
	maxQueued    = 64 << 20  // bytes that wait at most
	enqueueLimit = 5 * time.Second
	flightLimit  = 10 * time.Second // of a future that never comes back
	closeLimit   = time.Second      // the same, when this server stops
)

// proposer turns commands into log entries.
type proposer struct {
	apply func(data []byte, timeout time.Duration) raft.ApplyFuture
	now   func() time.Time
	guard *transferGuard
	tell  func() error // an empty entry, which tells followers of the commits before it
	stop  chan struct{}
	wait  sync.WaitGroup
	slots chan struct{}

	mu      sync.Mutex
	queue   []*proposal
	bytes   int
	wake    chan struct{}
	closed  bool
	aloft   int  // entries in flight
	untold  bool // an entry has committed since the newest that tells of commits was sent
	telling bool // an empty one is in flight
}

// proposal is one command under way.
type proposal struct {
	data []byte       // an Entry of this command alone; entries are joined by joining their bytes
	done chan outcome // capacity 1
}

// outcome is how a proposal ended.
type outcome struct {
	result state.Result
	index  muster.Index
	err    error
}

func newProposer(apply func([]byte, time.Duration) raft.ApplyFuture, tell func() error, now func() time.Time, guard *transferGuard) *proposer {
	p := &proposer{apply: apply, tell: tell, now: now, guard: guard, stop: make(chan struct{}), slots: make(chan struct{}, maxFlights), wake: make(chan struct{}, 1)}
	p.wait.Go(p.run)
	return p
}

// start queues a command; the outcome comes later. The command is not kept.
func (p *proposer) start(command *wire.Command) (*proposal, error) {
	data := wire.Encode(&wire.Entry{Commands: []*wire.Command{command}})
	if len(data) > maxCommand {
		return nil, muster.Errorf(muster.KindInvalid, "the request has %s, more than the %s that one may have", muster.Bytes(len(data)).Human(),
			muster.Bytes(maxCommand).Human()).WithHint("Send it in parts; large scripts and data belong in a shared directory")
	}
	q := &proposal{data: data, done: make(chan outcome, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, unavailable("this server is stopping; nothing was done")
	}
	if p.bytes+len(data) > maxQueued {
		return nil, unavailable("this server has %s of requests waiting; nothing was done", muster.Bytes(p.bytes).Human())
	}
	p.queue = append(p.queue, q)
	p.bytes += len(data)
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return q, nil
}

// wait gives the outcome. When ctx ends first, the command may still commit.
func (q *proposal) wait(ctx context.Context) outcome {
	select {
	case out := <-q.done:
		return out
	case <-ctx.Done():
		return outcome{err: unavailable("no answer in time; whether it was done is not known: %v", context.Cause(ctx))}
	}
}

func (p *proposer) run() {
	for {
		select {
		case <-p.stop:
			return
		case <-p.wake:
		}
		for {
			select {
			case p.slots <- struct{}{}:
			case <-p.stop:
				return
			}
			batch := p.take()
			if len(batch) == 0 {
				<-p.slots
				break
			}
			p.fly(batch)
		}
	}
}

// take takes what fits into one entry off the queue.
func (p *proposer) take() []*proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	size, n := 0, 0
	for n < len(p.queue) && (n == 0 || size+len(p.queue[n].data) <= entryAim) {
		size += len(p.queue[n].data)
		n++
	}
	batch := p.queue[:n:n]
	p.queue = p.queue[n:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
	p.bytes -= size
	if n > 0 {
		p.aloft++
		p.untold = false // this one tells of those before it
	}
	return batch
}

// landed notes that an entry has its outcome. Raft tells followers of a commit with the next entry; when none comes they would
// hear of it only after raft's own pause, and so would the workers and clients who talk to them. So then an empty one goes
// out, one at a time: with entries in flight it costs nothing.
func (p *proposer) landed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aloft--
	if err != nil || p.closed {
		return
	}
	p.untold = true
	if !p.telling && p.idle() {
		p.telling = true
		go p.tellOn() // not waited for: a future of raft's may never come back
	}
}

// idle says whether no entry comes by itself.
func (p *proposer) idle() bool { return p.aloft == 0 && len(p.queue) == 0 }

// tellOn sends empty entries until followers have been told of every commit.
func (p *proposer) tellOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.untold && p.idle() && !p.closed {
		p.untold = false
		p.mu.Unlock()
		err := p.tell()
		p.mu.Lock()
		if err != nil { // no leader any more: the next one tells
			break
		}
	}
	p.telling = false
}

// fly proposes one entry, and lets go of its slot when the outcome is there.
func (p *proposer) fly(batch []*proposal) {
	data := wire.Encode(&wire.Entry{Stamp: int64(muster.TimeOf(p.now()))})
	for _, q := range batch {
		data = append(data, q.data...)
	}
	future := p.apply(data, enqueueLimit)
	landed := make(chan struct{})
	go func() { // not waited for: a future of raft's may never come back
		defer close(landed)
		err := deliver(batch, future)
		p.landed(err)
		p.guard.note(err)
	}()
	p.wait.Go(func() {
		defer func() { <-p.slots }()
		limit := time.NewTimer(flightLimit)
		defer limit.Stop()
		select {
		case <-landed:
			return
		case <-limit.C:
		case <-p.stop:
			limit.Reset(closeLimit)
			select {
			case <-landed:
				return
			case <-limit.C:
			}
		}
		finish(batch, unavailable("no answer in time; whether it was done is not known"))
	})
}

// deliver waits for an entry and hands out its results; the error is raft's.
func deliver(batch []*proposal, future raft.ApplyFuture) error {
	if err := future.Error(); err != nil {
		finish(batch, proposeError(err))
		return err
	}
	results, ok := future.Response().([]state.Result)
	if !ok || len(results) != len(batch) {
		finish(batch, fmt.Errorf("the log entry at %d of %d commands gave %T (%d)", future.Index(), len(batch), future.Response(), len(results)))
		return nil
	}
	index := muster.Index(future.Index())
	for i, q := range batch {
		q.offer(outcome{result: results[i], index: index})
	}
	return nil
}

// transferGuard ends a process whose raft is stuck in a transfer of leadership: such a leader refuses writes, at times for
// good, while its heartbeats keep the others from electing one that does not.
type transferGuard struct {
	limit time.Duration
	fatal func(error)
	now   func() Boot

	mu    sync.Mutex
	since Boot // of the first refusal in a row; 0 = none
	ended bool
}

func (g *transferGuard) note(err error) {
	g.mu.Lock()
	now := g.now()
	if !errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		g.since = 0
	} else if g.since == 0 {
		g.since = now
	}
	stuck := !g.ended && g.since > 0 && now-g.since > Boot(g.limit)
	g.ended = g.ended || stuck
	g.mu.Unlock()
	if stuck {
		g.fatal(fmt.Errorf("raft has refused writes for %v because of a transfer of leadership: it is stuck", g.limit))
	}
}

func finish(batch []*proposal, err error) {
	for _, q := range batch {
		q.offer(outcome{err: err})
	}
}

// offer gives the first outcome; a later one (of a future that came back after all) is dropped.
func (q *proposal) offer(out outcome) {
	select {
	case q.done <- out:
	default:
	}
}

// close refuses what comes and what waits, and waits for what is in flight. Raft must still run: it answers what flies.
func (p *proposer) close() {
	p.mu.Lock()
	p.closed = true
	waiting := p.queue
	p.queue = nil
	p.mu.Unlock()
	close(p.stop)
	finish(waiting, unavailable("this server is stopping; nothing was done"))
	p.wait.Wait()
}

func unavailable(format string, args ...any) error {
	return muster.Errorf(muster.KindUnavailable, format, args...)
}

// proposeError says whether a failed proposal may have been done.
func proposeError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return unavailable("this server is not the leader; nothing was done")
	case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return unavailable("the leader takes no requests just now (%v); nothing was done", err)
	default:
		return unavailable("whether it was done is not known: %v", err)
	}
}
