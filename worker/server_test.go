package worker

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// testServer is a server whose answers the test gives, over real gRPC.
type testServer struct {
	wire.UnimplementedWorkersServer
	address  string
	sessions chan *conversation
}

// conversation is a worker's session, seen from the server.
type conversation struct {
	t      testing.TB
	stream wire.Workers_SessionServer
	hello  *wire.RegisterNode
	in     chan *wire.FromWorker
	over   chan struct{}
}

func serve(t testing.TB) *testServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{address: l.Addr().String(), sessions: make(chan *conversation, 16)}
	g := grpc.NewServer()
	wire.RegisterWorkersServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *testServer) Session(stream wire.Workers_SessionServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	c := &conversation{stream: stream, hello: first.GetHello(), in: make(chan *wire.FromWorker, 1000), over: make(chan struct{})}
	s.sessions <- c
	for {
		m, err := stream.Recv()
		if err != nil {
			close(c.over)
			return nil
		}
		c.in <- m
	}
}

// accept waits for a worker's session.
func (s *testServer) accept(t testing.TB) *conversation {
	t.Helper()
	select {
	case c := <-s.sessions:
		c.t = t
		if c.hello == nil {
			t.Fatal("the first message is not hello")
		}
		return c
	case <-time.After(patient):
		t.Fatal("no worker came")
		return nil
	}
}

func (c *conversation) send(m *wire.ToWorker) {
	c.t.Helper()
	if err := c.stream.Send(m); err != nil {
		c.t.Errorf("the worker has hung up: %v", err)
	}
}

func (c *conversation) welcome(kill ...muster.AllocID) {
	c.t.Helper()
	c.send(&wire.ToWorker{Message: &wire.ToWorker_Welcome{Welcome: &wire.Welcome{
		Node: 1, Cluster: "cluster-one", Kill: wire.AllocIDsOf(kill)}}})
}

func (c *conversation) view(version muster.Version, full bool, gone []muster.AllocID, desired ...*wire.Desired) {
	c.t.Helper()
	c.send(&wire.ToWorker{Message: &wire.ToWorker_View{View: &wire.View{
		Version: wire.VersionOf(version), Full: full, Desired: desired, Gone: wire.AllocIDsOf(gone)}}})
}

func (c *conversation) next() *wire.FromWorker {
	c.t.Helper()
	select {
	case m := <-c.in:
		return m
	case <-c.over:
		c.t.Fatal("the worker hung up")
	case <-time.After(patient):
		c.t.Fatal("the worker says nothing")
	}
	return nil
}

// awaitOver waits until the worker has hung up.
func (c *conversation) awaitOver() {
	c.t.Helper()
	select {
	case <-c.over:
	case <-time.After(patient):
		c.t.Fatal("the worker does not hang up")
	}
}

// awaitRenew waits for a renewal that names an allocation, or one that names none.
func (c *conversation) awaitRenew(id muster.AllocID) *wire.Renew {
	c.t.Helper()
	for {
		if r := c.next().GetRenew(); r != nil && (names(r, id) || id.IsZero() && len(r.GetAllocs()) == 0) {
			return r
		}
	}
}

func names(r *wire.Renew, id muster.AllocID) bool {
	ids, err := wire.AllocIDs(r.GetAllocs())
	return err == nil && slices.Contains(ids, id)
}

func (c *conversation) renewed(r *wire.Renew) {
	c.t.Helper()
	c.send(&wire.ToWorker{Message: &wire.ToWorker_Renewed{Renewed: &wire.Renewed{Seq: r.GetSeq()}}})
}

func (c *conversation) ack(seq uint64) {
	c.t.Helper()
	c.send(&wire.ToWorker{Message: &wire.ToWorker_Ack{Ack: &wire.Ack{Seq: seq}}})
}

// awaitReport waits for a report that brings an allocation to a phase. Renewals on the way are answered, and other reports
// acknowledged.
func (c *conversation) awaitReport(id muster.AllocID, phase muster.AllocPhase) (*wire.Report, muster.AllocReport) {
	c.t.Helper()
	for late := time.Now().Add(patient); ; {
		m := c.next()
		if time.Now().After(late) {
			c.t.Fatalf("no report that %s is %s", id, phase)
		}
		if r := m.GetRenew(); r != nil {
			c.renewed(r)
		}
		if m.GetReport() == nil {
			continue
		}
		if r := find(c.t, m.GetReport().GetAllocs(), id); r.Phase == phase {
			return m.GetReport(), r
		}
		c.ack(m.GetReport().GetSeq())
	}
}

// find gives the line about an allocation; the zero report when there is none.
func find(t testing.TB, list []*wire.AllocReport, id muster.AllocID) muster.AllocReport {
	t.Helper()
	for _, l := range list {
		r, err := l.Domain()
		if err != nil {
			t.Fatal(err)
		}
		if r.ID == id {
			return r
		}
	}
	return muster.AllocReport{}
}

// dial is how workers reach test servers.
func dial(_ context.Context, address string) (grpc.ClientConnInterface, io.Closer, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return conn, conn, err
}
