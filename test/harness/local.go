package harness

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/cluster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/worker"
)

// Local is a cluster of servers in this process, on real disks and loopback, with workers whose link to the servers can be
// cut. Their tasks are real processes.
type Local struct {
	t         testing.TB
	Dir       string
	addresses []string
	servers   []*cluster.Server
}

// StartLocal starts n servers and waits until one leads. All ends with the test.
func StartLocal(t testing.TB, n int) *Local {
	t.Helper()
	dir, err := os.MkdirTemp("", "ml-") // short: sockets live below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &Local{t: t, Dir: dir}
	var join []string
	for i := range n {
		join = append(join, l.startServer(i, n, join))
	}
	Until(t, "a leader", func() error {
		_, err := l.Client().ListNodes(context.Background(), nil)
		return err
	})
	return l
}

func (l *Local) startServer(i, expect int, join []string) (gossip string) {
	l.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	address := listener.Addr().String()
	raft, grpc := cluster.Split(listener)
	name := "s" + string(rune('1'+i))
	server, err := cluster.Start(cluster.Config{
		DataDir: filepath.Join(l.Dir, name), Name: name, ClusterID: "test", RPCAddress: address, RaftListener: raft,
		GossipAddress: "127.0.0.1:0", Join: join, Expect: expect, Logger: quiet(name),
		Fatal: func(err error) { l.t.Errorf("%s must end: %v", name, err) },
	})
	if err != nil {
		l.t.Fatal(err)
	}
	service := rpc.NewServer(rpc.Config{Local: server, User: "tester", Logger: quiet(name)})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := service.Serve(grpc, nil); err != nil {
			l.t.Errorf("%s: %v", name, err)
		}
	})
	l.t.Cleanup(func() {
		service.Stop()
		serving.Wait()
		if err := server.Shutdown(); err != nil {
			l.t.Errorf("%s: %v", name, err)
		}
	})
	l.addresses, l.servers = append(l.addresses, address), append(l.servers, server)
	return server.GossipAddress()
}

func quiet(name string) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.LevelFromString(os.Getenv("MUSTER_TEST_LOG"))})
}

// Client connects to all servers; closed with the test.
func (l *Local) Client() *rpc.Client {
	l.t.Helper()
	client, err := rpc.Dial(l.addresses, rpc.Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { client.Close() })
	return client
}

// Worker starts a worker with simulated GPUs, and gives its link to all servers.
func (l *Local) Worker(name string, gpus int) *Link {
	l.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	link := newLink()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	dir := filepath.Join(l.Dir, name)
	go func() {
		done <- worker.Run(ctx, worker.Config{
			Name: name, Cluster: "test", DataDir: dir, RunDir: filepath.Join(dir, "run"), Listener: listener, Servers: l.addresses,
			Dial: rpc.WorkerDial(link.dial, nil), Simulate: &worker.Simulated{GPUs: gpus}, AllowRoot: true, Binary: Binary(l.t),
			Logger: quiet(name), Labels: []muster.Label{{Key: "host", Value: name}},
		})
	}()
	l.t.Cleanup(func() {
		stop()
		link.Heal()
		if err := <-done; err != nil && ctx.Err() == nil {
			l.t.Errorf("%s: %v", name, err)
		}
		KillSupervisors(dir)
	})
	return link
}

// Link is what a worker's traffic with the servers goes through. While it is cut nothing passes, and nobody is told.
type Link struct {
	mu   sync.Mutex
	open chan struct{} // closed while the link is whole
}

func newLink() *Link {
	l := &Link{open: make(chan struct{})}
	close(l.open)
	return l
}

// Cut holds everything back.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

// Heal lets everything through, what was held back first.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

func (l *Link) whole() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

func (l *Link) dial(ctx context.Context, address string) (net.Conn, error) {
	select {
	case <-l.whole():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &linkedConn{Conn: conn, link: l, closed: make(chan struct{})}, nil
}

type linkedConn struct {
	net.Conn
	link   *Link
	once   sync.Once
	closed chan struct{}
}

func (c *linkedConn) pass() {
	select {
	case <-c.link.whole():
	case <-c.closed:
	}
}

func (c *linkedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.pass()
	return n, err
}

func (c *linkedConn) Write(p []byte) (int, error) {
	c.pass()
	return c.Conn.Write(p)
}

func (c *linkedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
