package rpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// atOnce is how many workers are read from at a time when logs are only fetched. A follower holds a stream for each rank.
const atOnce = 64

// Logs relays what the workers of a job hold of its ranks' output: attempt after attempt, the ranks of one together.
func (s *Server) Logs(r *wire.LogsRequest, stream grpc.ServerStreamingServer[wire.LogChunk]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	state, err := s.read(ctx, false)
	if err != nil {
		return err
	}
	id, err := state.ResolveJob(r.Job, CallerFrom(ctx).User)
	if err != nil {
		return err
	}
	if err := stream.SendHeader(nil); err != nil { // the client sees that it is served, however long the log is silent
		return err
	}
	relay := &logRelay{server: s, request: r, job: id, groups: state.GroupNames(id), ctx: ctx, stream: stream, fail: cancel, wake: make(chan struct{}, 1)}
	relay.positions = make(map[muster.AllocID]*wire.LogPosition, len(r.Positions))
	for _, p := range r.Positions {
		relay.positions[allocID(p.GetAlloc())] = p
	}
	if r.Follow {
		err = relay.follow()
	} else {
		err = relay.fetch(state)
	}
	cancel()
	relay.running.Wait()
	if relay.sendErr != nil {
		return relay.sendErr
	}
	return err
}

// logRelay is one Logs call.
type logRelay struct {
	server    *Server
	request   *wire.LogsRequest
	job       muster.JobID
	groups    []string // their names
	ctx       context.Context
	stream    grpc.ServerStreamingServer[wire.LogChunk]
	positions map[muster.AllocID]*wire.LogPosition
	first     uint32 // the attempt that last lines begin with; 0 = not known yet
	running   sync.WaitGroup
	wake      chan struct{} // a rank's log has ended

	sending sync.Mutex // one sends at a time
	sendErr error
	fail    context.CancelFunc
}

// targets lists the allocations whose logs are asked for. A request for the last lines begins with the attempt that is the
// newest now (for one who comes back: with the first that it had begun).
func (l *logRelay) targets(state *wire.Reader) ([]*muster.Allocation, error) {
	all, err := state.LogTargets(l.job, l.request)
	if err != nil || l.request.LastLines == 0 || len(all) == 0 {
		return all, err
	}
	if l.first == 0 {
		l.first = all[len(all)-1].Attempt
		for _, a := range all {
			if l.positions[a.ID] != nil {
				l.first = min(l.first, a.Attempt)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(a *muster.Allocation) bool { return a.Attempt < l.first }), nil
}

// fetch relays what is there now and ends.
func (l *logRelay) fetch(state *wire.Reader) error {
	targets, err := l.targets(state)
	if err != nil {
		return err
	}
	for len(targets) > 0 {
		n := 1
		for n < min(len(targets), atOnce) && targets[n].Attempt == targets[0].Attempt {
			n++
		}
		l.merge(targets[:n])
		if err := l.ctx.Err(); err != nil {
			return err
		}
		targets = targets[n:]
	}
	return nil
}

// merge relays the logs of some ranks, line by line in the order in which they were written.
func (l *logRelay) merge(targets []*muster.Allocation) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	sources := make([]chan *wire.LogChunk, len(targets))
	var reading sync.WaitGroup
	for i, a := range targets {
		sources[i] = make(chan *wire.LogChunk)
		reading.Go(func() {
			defer close(sources[i])
			l.source(ctx, a, func(chunk *wire.LogChunk) error {
				select {
				case sources[i] <- chunk:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}
	heads := make([]*wire.LogChunk, len(targets))
	for i := range heads {
		heads[i] = <-sources[i]
	}
	for {
		first := -1
		for i, head := range heads {
			if head != nil && (first < 0 || head.Time < heads[first].Time) {
				first = i
			}
		}
		if first < 0 || l.send(heads[first]) != nil {
			break
		}
		heads[first] = <-sources[first]
	}
	cancel()
	reading.Wait()
}

// follow relays what is there and what comes, and ends with the job. An attempt is begun when the one before has been told to
// its end.
func (l *logRelay) follow() error {
	wake, stop := l.server.local.Watch([]muster.JobID{l.job}, nil)
	defer stop()
	begun := make(map[muster.AllocID]chan struct{}) // closed when told to its end
	for {
		state := l.server.local.Read()
		job, err := jobIn(state, l.job, false, false)
		if err != nil {
			return err
		}
		phase, _ := muster.ParseJobPhase(job.State)
		targets, err := l.targets(state)
		if err != nil {
			return err
		}
		open := l.begin(targets, begun)
		if phase.Terminal() && !open {
			return nil
		}
		select {
		case <-wake:
		case <-l.wake:
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
}

// begin starts telling what may be told now, and says whether anything is still to be told.
func (l *logRelay) begin(targets []*muster.Allocation, begun map[muster.AllocID]chan struct{}) (open bool) {
	attempt := uint32(0)
	for _, a := range targets {
		if open && a.Attempt != attempt {
			return true // the attempts before come first
		}
		attempt = a.Attempt
		ended, known := begun[a.ID]
		if known {
			select {
			case <-ended:
			default:
				open = true
			}
			continue
		}
		if a.Phase < muster.AllocRunning {
			open = true // it has written nothing yet; its start wakes
			continue
		}
		ended = make(chan struct{})
		begun[a.ID] = ended
		open = true
		l.running.Go(func() {
			l.tell(a)
			close(ended)
			select {
			case l.wake <- struct{}{}:
			default:
			}
		})
	}
	return open
}

// tell relays one rank's log to its end, over restarts of its worker.
func (l *logRelay) tell(a *muster.Allocation) {
	_ = l.source(l.ctx, a, l.send)
}

// retries bounds how often the log of a rank that has ended is asked for at a worker that doesn't answer.
const retries = 5

// source gives the chunks of one rank's log to give: when following until the log is complete, else what is there. What
// can't be had is said in a chunk with a note.
func (l *logRelay) source(ctx context.Context, a *muster.Allocation, give func(*wire.LogChunk) error) error {
	at := &logCursor{request: &wire.ReadLogRequest{
		Alloc: wire.AllocIDOf(a.ID), Since: l.request.Since, Follow: l.request.Follow,
	}}
	if a.Attempt == l.first { // what began later is told from its beginning
		at.request.LastLines = l.request.LastLines
	}
	if p := l.positions[a.ID]; p != nil {
		if p.End {
			return nil
		}
		at.goOn(p.Offset)
	}
	noted := ""
	for try, pause := 0, 50*time.Millisecond; ; pause = min(2*pause, time.Second) {
		address, node, err := l.server.local.Read().AllocAt(a.ID)
		if err == nil {
			var moved bool
			named := func(chunk *wire.LogChunk) error {
				// A worker that has forgotten the allocation still has its log, and no longer knows whose it was.
				chunk.Group, chunk.Rank, chunk.Attempt = int64(a.Group), int64(a.Rank), a.Attempt
				if a.Running == 0 { // it never ran: there is no output to be missed
					chunk.Note = ""
				}
				return give(chunk)
			}
			if moved, err = l.readFrom(ctx, address, at, named); err == nil || ctx.Err() != nil {
				return err
			}
			if moved {
				try, pause, noted = 0, 50*time.Millisecond, ""
			}
		}
		if errors.Is(err, errGive) {
			return err
		}
		ended := l.hasEnded(a.ID)
		if muster.KindOf(err) == muster.KindNotFound && (ended || !l.request.Follow) {
			return nil // it never wrote, or the files are gone with their retention
		}
		if note := asError(err).Error(); muster.KindOf(err) != muster.KindNotFound && note != noted {
			noted = note
			if node != "" {
				note = "node " + node + ": " + note
			}
			chunk := &wire.LogChunk{Alloc: wire.AllocIDOf(a.ID), Group: int64(a.Group), Rank: int64(a.Rank), Attempt: a.Attempt,
				Node: node, Next: at.request.Offset, Note: note, Time: at.time}
			if err := give(chunk); err != nil {
				return err
			}
		}
		if try++; !l.request.Follow || ended && try > retries {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// logCursor is where the reading of one log stands.
type logCursor struct {
	request *wire.ReadLogRequest
	time    int64
}

// goOn moves the cursor to a byte: from there on nothing is left out.
func (c *logCursor) goOn(offset int64) {
	c.request.Offset, c.request.LastLines, c.request.Since = offset, 0, 0
}

// errGive marks that the reader of the chunks, not the worker, ended it.
var errGive = errors.New("nobody reads")

// readFrom relays one stream of a worker. No error: the log was told to its end (or, not following, as far as it goes).
func (l *logRelay) readFrom(ctx context.Context, address string, at *logCursor, give func(*wire.LogChunk) error) (moved bool, err error) {
	conn, err := l.server.workers.to(address)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := wire.NewNodeLogsClient(conn).ReadLog(ctx, at.request)
	if err != nil {
		return false, wire.FromStatus(err)
	}
	for {
		chunk, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && !l.request.Follow:
			return moved, nil
		case errors.Is(err, io.EOF):
			return moved, muster.Errorf(muster.KindUnavailable, "the worker stopped sending")
		case err != nil:
			return moved, wire.FromStatus(err)
		}
		moved = true
		at.time = chunk.Time
		if err := give(chunk); err != nil {
			return moved, errors.Join(errGive, err)
		}
		if chunk.End {
			return moved, nil
		}
		if len(chunk.Data) > 0 {
			at.goOn(chunk.Next)
		}
	}
}

func (l *logRelay) hasEnded(id muster.AllocID) bool {
	targets, err := l.server.local.Read().LogTargets(l.job, &wire.LogsRequest{})
	if err != nil {
		return true // the job is forgotten
	}
	for _, a := range targets {
		if a.ID == id {
			return a.Phase == muster.AllocEnded
		}
	}
	return true
}

// send sends one chunk to the client; the first failure ends the relay.
func (l *logRelay) send(chunk *wire.LogChunk) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	if l.sendErr != nil {
		return l.sendErr
	}
	if len(l.groups) > 1 && chunk.Group >= 0 && chunk.Group < int64(len(l.groups)) {
		chunk.GroupName = l.groups[chunk.Group]
	}
	if l.sendErr = l.stream.Send(chunk); l.sendErr != nil {
		l.fail()
	}
	return l.sendErr
}

// allocID reads an identity as a client sent it; what is none names no allocation.
func allocID(p *wire.AllocID) muster.AllocID {
	return muster.AllocID{Epoch: muster.Epoch(p.GetEpoch()), Counter: p.GetCounter()}
}
