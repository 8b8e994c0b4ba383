package harness

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/cluster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/worker"
)

// Local is a cluster of servers in this process, on real disks and loopback, with workers whose link to the servers can be
// cut, and with servers that can be frozen. Their tasks are real processes.
type Local struct {
	t         testing.TB
	Dir       string
	addresses []string
	servers   []*cluster.Server
	raft      []*Link // what each server hears of raft comes through it
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
	hears := newLink()
	raft = &linkedListener{raft, hears}
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
		hears.Heal()
		service.Stop()
		serving.Wait()
		if err := server.Shutdown(); err != nil {
			l.t.Errorf("%s: %v", name, err)
		}
	})
	l.addresses, l.servers, l.raft = append(l.addresses, address), append(l.servers, server), append(l.raft, hears)
	return server.GossipAddress()
}

// FreezeFollower keeps everything that raft says from a follower that worker has not connected to: it serves clients and
// workers with a state that stands still. It gives the server's address, and how to let it go on.
func (l *Local) FreezeFollower(worker *Link) (address string, thaw func()) {
	l.t.Helper()
	for i, server := range l.servers {
		if _, leads := server.Leader(); !leads && worker.Dials(l.addresses[i]) == 0 {
			l.raft[i].Cut()
			return l.addresses[i], l.raft[i].Heal
		}
	}
	l.t.Fatal("no follower is without this worker")
	return "", nil
}

// Servers are their addresses.
func (l *Local) Servers() []string { return slices.Clone(l.addresses) }

// Behead keeps everything that raft says from all servers, and returns when none of them leads any more. It gives how to let them
// elect again.
func (l *Local) Behead() (elect func()) {
	l.t.Helper()
	for _, hears := range l.raft {
		hears.Cut()
	}
	Until(l.t, "nobody leads", func() error {
		for _, server := range l.servers {
			if _, leads := server.Leader(); leads {
				return errors.New("somebody does")
			}
		}
		return nil
	})
	return func() {
		for _, hears := range l.raft {
			hears.Heal()
		}
	}
}

// quiet logs nothing unless MUSTER_TEST_LOG names a level.
func quiet(name string) hclog.Logger {
	level := hclog.LevelFromString(os.Getenv("MUSTER_TEST_LOG"))
	if level == hclog.NoLevel {
		level = hclog.Off
	}
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: level})
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
	dir, binary := filepath.Join(l.Dir, name), Binary(l.t)
	go func() {
		done <- worker.Run(ctx, worker.Config{
			Name: name, Cluster: "test", DataDir: dir, RunDir: filepath.Join(dir, "run"), Listener: listener, Servers: l.addresses,
			Dial: rpc.WorkerDial(link.dial, nil), Simulate: &worker.Simulated{GPUs: gpus}, AllowRoot: true, Binary: binary,
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
