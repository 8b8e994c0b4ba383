package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// logHost is a worker's log service that works, over logs in memory; a line is a chunk.
type logHost struct {
	wire.UnimplementedNodeLogsServer
	t       *testing.T
	address string
	server  *grpc.Server

	mu     sync.Mutex
	lines  map[muster.AllocID][]logLine
	ended  map[muster.AllocID]bool
	moved  chan struct{}
	cutIn  int // a stream breaks after so many lines; 0 = never
	opened int
}

type logLine struct {
	text string
	time int64
}

func startLogHost(t *testing.T) *logHost {
	h := &logHost{t: t, lines: make(map[muster.AllocID][]logLine), ended: make(map[muster.AllocID]bool), moved: make(chan struct{})}
	h.serve("127.0.0.1:0")
	t.Cleanup(func() { h.server.Stop() })
	return h
}

func (h *logHost) serve(address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.address = l.Addr().String()
	h.server = grpc.NewServer(grpc.WaitForHandlers(true))
	wire.RegisterNodeLogsServer(h.server, h)
	go func() { _ = h.server.Serve(l) }()
}

func (h *logHost) write(id muster.AllocID, at int64, texts ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, text := range texts {
		h.lines[id] = append(h.lines[id], logLine{text, at})
		at++
	}
	close(h.moved)
	h.moved = make(chan struct{})
}

func (h *logHost) end(id muster.AllocID) {
	h.mu.Lock()
	h.ended[id] = true
	h.mu.Unlock()
	h.write(id, 0)
}

func (h *logHost) ReadLog(r *wire.ReadLogRequest, stream grpc.ServerStreamingServer[wire.LogChunk]) error {
	id, _ := r.Alloc.Domain()
	h.mu.Lock()
	h.opened++
	cut := h.cutIn
	first := 0
	if n := int(r.LastLines); n > 0 {
		first = max(0, len(h.lines[id])-n)
	}
	if _, known := h.lines[id]; !known {
		h.mu.Unlock()
		return wire.StatusOf(muster.Errorf(muster.KindNotFound, "no log of %s", id))
	}
	h.mu.Unlock()
	for sent := 0; ; {
		h.mu.Lock()
		lines, ended, moved := h.lines[id], h.ended[id], h.moved
		h.mu.Unlock()
		offset := int64(0)
		for i, line := range lines {
			next := offset + int64(len(line.text)) + 1
			if i >= first && next > r.Offset {
				chunk := &wire.LogChunk{Alloc: r.Alloc, Data: []byte(line.text[max(0, r.Offset-offset):] + "\n"), Time: line.time, Next: next, Node: "w"}
				if err := stream.Send(chunk); err != nil {
					return err
				}
				if sent++; sent == cut {
					return wire.StatusOf(muster.Errorf(muster.KindUnavailable, "the agent went away"))
				}
			}
			offset = next
		}
		first = 0
		r.Offset = offset
		switch {
		case ended:
			return stream.Send(&wire.LogChunk{Alloc: r.Alloc, Next: offset, End: true})
		case !r.Follow:
			return nil
		}
		select {
		case <-moved:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// runJob makes a job with so many ranks and starts its first attempt, all ranks on node "w" whose logs h keeps.
func (c *fakeCluster) runJob(h *logHost, ranks int) (job uint64, allocs []muster.AllocID) {
	c.t.Helper()
	r, _ := c.commit(&state.RegisterNode{Node: *nodeNamed("w", h.address)})
	if r.Err != nil {
		c.t.Fatal(r.Err)
	}
	request := submission("talker")
	request.Specs[0].Groups[0].Count = int64(ranks)
	made, err := c.client(rpc.Options{}).Submit(soon(c.t), request)
	if err != nil {
		c.t.Fatal(err)
	}
	return made.Ids[0], c.attempt(made.Ids[0], 1, ranks, r.Node)
}

// attempt places and starts an attempt.
func (c *fakeCluster) attempt(job uint64, number uint32, ranks int, node muster.NodeID) (allocs []muster.AllocID) {
	c.t.Helper()
	gang := state.GangPlacement{Job: muster.JobID(job), Attempt: number}
	for rank := range ranks {
		gang.Ranks = append(gang.Ranks, state.RankPlacement{Rank: rank, Node: node, MilliCores: 1000, Memory: 4 * muster.GiB})
	}
	c.mu.Lock()
	term := c.term
	c.mu.Unlock()
	if r, _ := c.commit(&state.CommitPlan{Term: term, Gangs: []state.GangPlacement{gang}}); r.Err != nil || len(r.Refused) > 0 {
		c.t.Fatalf("not placed: %v %v", r.Err, r.Refused)
	}
	c.members[0].mu.Lock()
	for a := range c.members[0].snapshot.AllocsOfAttempt(muster.JobID(job), number) {
		allocs = append(allocs, a.ID)
	}
	c.members[0].mu.Unlock()
	for _, phase := range []muster.AllocPhase{muster.AllocReady, muster.AllocRunning} {
		for _, id := range allocs {
			c.report(node, muster.AllocReport{ID: id, Phase: phase, Running: 1})
		}
	}
	return allocs
}

func (c *fakeCluster) report(node muster.NodeID, r muster.AllocReport) {
	c.t.Helper()
	if result, _ := c.commit(&state.ReportAllocs{Node: node, Allocs: []muster.AllocReport{r}}); result.Err != nil {
		c.t.Fatal(result.Err)
	}
}

// collect gathers the text of chunks; a note stands in brackets.
type collect struct {
	mu    sync.Mutex
	text  strings.Builder
	moved chan struct{}
}

func newCollect() *collect { return &collect{moved: make(chan struct{}, 1000)} }

func (s *collect) show(chunk *wire.LogChunk) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(chunk.Data)
	if chunk.Note != "" {
		fmt.Fprintf(&s.text, "[%s]\n", chunk.Note)
	}
	select {
	case s.moved <- struct{}{}:
	default:
	}
	return nil
}

func (s *collect) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// until waits for a text.
func (s *collect) until(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(s.String(), text) {
		select {
		case <-s.moved:
		case <-ctx.Done():
			t.Fatalf("%q never came; there is %q", text, s.String())
		}
	}
}

func TestLogsOfAllRanksComeInTheOrderInWhichTheyWereWritten(t *testing.T) {
	c := startCluster(t, 3)
	h := startLogHost(t)
	job, allocs := c.runJob(h, 3)
	h.write(allocs[0], 10, "a0")
	h.write(allocs[1], 11, "b0")
	h.write(allocs[2], 12, "c0")
	h.write(allocs[0], 13, "a1")
	got := newCollect()
	if err := c.client(rpc.Options{}, 1).FollowLogs(soon(t), &wire.LogsRequest{Job: &wire.JobRef{Id: job}}, got.show); err != nil {
		t.Fatal(err)
	}
	if want := "a0\nb0\nc0\na1\n"; got.String() != want {
		t.Errorf("got %q, want %q", got, want)
	}
	one := newCollect()
	if err := c.client(rpc.Options{}, 2).FollowLogs(soon(t), &wire.LogsRequest{Job: &wire.JobRef{Id: job}, Ranks: []int64{0}, LastLines: 1}, one.show); err != nil {
		t.Fatal(err)
	}
	if one.String() != "a1\n" {
		t.Errorf("the last line of rank 0 is %q", one)
	}
}

func TestFollowedLogsWaitForTheStartGoOnOverAttemptsAndEndWithTheJob(t *testing.T) {
	c := startCluster(t, 2)
	h := startLogHost(t)
	node, _ := c.commit(&state.RegisterNode{Node: *nodeNamed("w", h.address)})
	client := c.client(rpc.Options{}, 1)
	request := submission("again")
	request.Specs[0].Groups[0].Retry = &wire.Retry{Attempts: 1, On: []uint32{uint32(muster.ClassExit)}, MaxDelay: 1}
	made, err := client.Submit(soon(t), request)
	if err != nil {
		t.Fatal(err)
	}
	id := muster.JobID(made.Ids[0])
	got := newCollect()
	ended := make(chan error, 1)
	ctx := soon(t)
	go func() {
		ended <- client.FollowLogs(ctx, &wire.LogsRequest{Job: &wire.JobRef{Id: made.Ids[0]}, Follow: true}, got.show)
	}()

	first := c.attempt(made.Ids[0], 1, 1, node.Node)[0]
	h.write(first, 1, "first try")
	got.until(ctx, t, "first try\n")
	h.write(first, 2, "it fails")
	h.end(first)
	c.report(node.Node, muster.AllocReport{ID: first, Phase: muster.AllocEnded, Running: 1, Ended: 2, Class: muster.ClassExit, ExitCode: 3})
	c.mu.Lock()
	term := c.term
	c.mu.Unlock()
	c.commit(&state.Wake{Term: term, Jobs: []muster.JobID{id}})
	second := c.attempt(made.Ids[0], 2, 1, node.Node)[0]
	h.write(second, 3, "second try")
	got.until(ctx, t, "second try\n")
	h.end(second)
	c.report(node.Node, muster.AllocReport{ID: second, Phase: muster.AllocEnded, Running: 1, Ended: 2})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if want := "first try\nit fails\nsecond try\n"; got.String() != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFollowerWhoseServerStopsGoesOnAtTheByte(t *testing.T) {
	c := startCluster(t, 3)
	h := startLogHost(t)
	job, allocs := c.runJob(h, 2)
	var mu sync.Mutex
	var said []string
	client := c.client(rpc.Options{Notify: func(s string) { mu.Lock(); said = append(said, s); mu.Unlock() }}, 2, 1)
	got := newCollect()
	ended := make(chan error, 1)
	ctx := soon(t)
	go func() {
		ended <- client.FollowLogs(ctx, &wire.LogsRequest{Job: &wire.JobRef{Id: job}, Follow: true}, got.show)
	}()
	h.write(allocs[0], 1, "zero one")
	h.write(allocs[1], 1, "one one")
	got.until(ctx, t, "zero one\n")
	got.until(ctx, t, "one one\n")
	c.members[2].rpc.Stop()
	h.write(allocs[0], 2, "zero two")
	h.write(allocs[1], 2, "one two")
	got.until(ctx, t, "zero two\n")
	for i, id := range allocs {
		h.end(id)
		c.report(1, muster.AllocReport{ID: id, Phase: muster.AllocEnded, Running: 1, Ended: 2})
		_ = i
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"zero one", "one one", "zero two", "one two"} {
		if n := strings.Count(got.String(), line+"\n"); n != 1 {
			t.Errorf("%q came %d times: %q", line, n, got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 1 || said[0] != "reconnected" {
		t.Errorf("the user was told %q", said)
	}
}

func TestAWorkerThatBreaksOffIsAskedAgainAtTheByte(t *testing.T) {
	c := startCluster(t, 1)
	h := startLogHost(t)
	h.cutIn = 2
	job, allocs := c.runJob(h, 1)
	h.write(allocs[0], 1, "l1", "l2", "l3", "l4", "l5")
	h.end(allocs[0])
	c.report(1, muster.AllocReport{ID: allocs[0], Phase: muster.AllocEnded, Running: 1, Ended: 2})
	got := newCollect()
	if err := c.client(rpc.Options{}).FollowLogs(soon(t), &wire.LogsRequest{Job: &wire.JobRef{Id: job}, Follow: true}, got.show); err != nil {
		t.Fatal(err)
	}
	text := got.String()
	for i := 1; i <= 5; i++ {
		if n := strings.Count(text, fmt.Sprintf("l%d\n", i)); n != 1 {
			t.Errorf("line %d came %d times: %q", i, n, text)
		}
	}
	if h.opened != 3 {
		t.Errorf("the worker was asked %d times", h.opened)
	}
}

func TestALostNodeIsSaidInTheLogs(t *testing.T) {
	c := startCluster(t, 1)
	h := startLogHost(t)
	job, allocs := c.runJob(h, 1)
	h.server.Stop()
	if r, _ := c.commit(&state.FenceNode{Header: state.Header{User: "ann"}, Node: "w"}); r.Err != nil {
		t.Fatal(r.Err)
	}
	got := newCollect()
	if err := c.client(rpc.Options{}).FollowLogs(soon(t), &wire.LogsRequest{Job: &wire.JobRef{Id: job}}, got.show); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.String(), "w") || !strings.HasPrefix(got.String(), "[") {
		t.Errorf("the reader sees %q of %v", got, allocs)
	}
}

func TestAReaderWhoStopsReadingEndsTheStream(t *testing.T) {
	c := startCluster(t, 1)
	h := startLogHost(t)
	job, allocs := c.runJob(h, 1)
	h.write(allocs[0], 1, "a", "b")
	enough := errors.New("enough")
	err := c.client(rpc.Options{}).FollowLogs(soon(t), &wire.LogsRequest{Job: &wire.JobRef{Id: job}, Follow: true},
		func(*wire.LogChunk) error { return enough })
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}
