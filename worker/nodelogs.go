package worker

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
	"github.com/musterhpc/muster/worker/step"
)

// nodeLogs serves the output of this node's allocations to servers.
type nodeLogs struct {
	wire.UnimplementedNodeLogsServer
	cfg *Config

	mu     sync.Mutex
	known  map[muster.AllocID]logFacts // while the agent knows the allocation
	closed chan struct{}
}

// logFacts is what every chunk of an allocation's output says, and whether its process has ended.
type logFacts struct {
	group, rank int64
	attempt     uint32
	ended       bool
}

func newNodeLogs(c *Config) *nodeLogs {
	return &nodeLogs{cfg: c, known: map[muster.AllocID]logFacts{}, closed: make(chan struct{})}
}

// update tells which allocations there are.
func (n *nodeLogs) update(m *step.Machine) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for t := range m.All() {
		f := logFacts{ended: t.Phase == muster.AllocEnded}
		if t.Assignment != nil {
			f.group, f.rank, f.attempt = int64(t.Assignment.Alloc.Group), int64(t.Assignment.Alloc.Rank), t.Assignment.Alloc.Attempt
		}
		if known, ok := n.known[t.ID]; !ok || known != f {
			n.known[t.ID] = f
		}
	}
	if len(n.known) > m.Len() {
		maps.DeleteFunc(n.known, func(id muster.AllocID, _ logFacts) bool { return !m.Knows(id) })
	}
}

// close ends the readers that follow.
func (n *nodeLogs) close() { close(n.closed) }

// about gives what each chunk says, and whether more output may come.
func (n *nodeLogs) about(id muster.AllocID) (chunk *wire.LogChunk, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &wire.LogChunk{Alloc: wire.AllocIDOf(id), Node: n.cfg.Name}
	known, ok := n.known[id]
	c.Group, c.Rank, c.Attempt = known.group, known.rank, known.attempt
	return c, ok && !known.ended
}

// settle is how long after an allocation's end its log may still get its last lines. A log that is not complete then never
// will be: its supervisor was killed.
const settle = 2 * time.Second

// ReadLog streams the output of an allocation.
func (n *nodeLogs) ReadLog(q *wire.ReadLogRequest, stream grpc.ServerStreamingServer[wire.LogChunk]) error {
	id, err := q.GetAlloc().Domain()
	if err != nil || id.IsZero() {
		return status.Error(codes.InvalidArgument, "a log is asked for by allocation number")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() { // ends with this call
		select {
		case <-n.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	from := exec.LogFrom{Offset: q.GetOffset(), LastLines: q.GetLastLines()}
	if q.GetSince() != 0 {
		from.Since = time.UnixMilli(q.GetSince())
	}
	_, more := n.about(id)
	reader, err := exec.OpenLog(n.cfg.logDir(id), from, q.GetFollow() && more)
	if errors.Is(err, fs.ErrNotExist) {
		chunk, _ := n.about(id)
		if chunk.End = !more; chunk.End {
			chunk.Note = "node " + n.cfg.Name + " keeps no output of it"
		}
		return stream.Send(chunk)
	}
	if err != nil {
		return failed(err)
	}
	defer reader.Close()
	return n.relay(ctx, id, reader, q.GetFollow(), stream)
}

// relay sends what the reader gives until the log is complete, or without follow until there is no more.
func (n *nodeLogs) relay(ctx context.Context, id muster.AllocID, reader *exec.LogReader, follow bool,
	stream grpc.ServerStreamingServer[wire.LogChunk]) error {
	for {
		_, more := n.about(id) // before looking: what is written before the end is found after it
		patience, cancel := context.WithTimeout(ctx, settle)
		record, err := reader.Next(patience)
		waited := patience.Err() != nil && ctx.Err() == nil
		cancel()
		chunk, _ := n.about(id)
		switch {
		case err == nil:
			chunk.Stderr, chunk.Data, chunk.Time = record.Stderr, record.Data, record.Time.UnixMilli()
			chunk.Next, chunk.Lost = record.Next, record.Lost
			if err := stream.Send(chunk); err != nil {
				return err
			}
			continue
		case waited && more:
			continue
		case errors.Is(err, io.EOF) && !follow && !reader.Complete() && more:
			return nil
		case waited, errors.Is(err, io.EOF):
			chunk.End, chunk.Next = true, reader.Position()
			return stream.Send(chunk)
		}
		return failed(err)
	}
}

// failed gives an error as it travels, with its kind.
func failed(err error) error {
	var e *muster.Error
	if !errors.As(err, &e) {
		return status.FromContextError(err).Err()
	}
	code := codes.Unknown
	switch e.Kind {
	case muster.KindUsage, muster.KindInvalid:
		code = codes.InvalidArgument
	case muster.KindNotFound:
		code = codes.NotFound
	}
	s, problem := status.New(code, e.Error()).WithDetails(
		&wire.Error{Kind: string(e.Kind), Message: e.Message, Hint: e.Hint, Field: e.Field})
	if problem != nil {
		return status.Error(code, e.Error())
	}
	return s.Err()
}
