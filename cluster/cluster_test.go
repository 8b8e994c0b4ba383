package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// patient is a timing that a race build on busy cores keeps up with.
var patient = Timing{500 * time.Millisecond, 500 * time.Millisecond, 250 * time.Millisecond}

// cluster is some servers in this process, over loopback and real disks.
type cluster struct {
	t       testing.TB
	servers []*testServer
	adjust  func(i int, c *Config) // before a server starts
}

type testServer struct {
	*Server
	config  Config
	network *network
	fatal   chan error
	grpc    net.Listener
	down    bool
}

// startCluster starts n servers that expect each other, and waits for a leader.
func startCluster(t testing.TB, n int, adjust func(i int, c *Config)) *cluster {
	t.Helper()
	c := &cluster{t: t, adjust: adjust}
	t.Cleanup(c.stop)
	for range n {
		c.add(n)
	}
	c.leader()
	return c
}

// add starts one more server, on an empty directory.
func (c *cluster) add(expect int) *testServer {
	c.t.Helper()
	s := &testServer{fatal: make(chan error, 8)}
	s.config = Config{
		DataDir: c.t.TempDir(), Name: fmt.Sprintf("server-%d", len(c.servers)+1), ClusterID: "test", Version: "1",
		RPCAddress: "127.0.0.1:0", GossipAddress: "127.0.0.1:0", Expect: expect, Timing: patient,
	}
	if out := os.Getenv("MUSTER_TEST_LOG"); out != "" {
		s.config.Logger = hclog.New(&hclog.LoggerOptions{Name: s.config.Name, Level: hclog.LevelFromString(out), Output: os.Stderr})
	}
	for _, other := range c.servers {
		if !other.down {
			s.config.Join = append(s.config.Join, other.GossipAddress())
		}
	}
	s.config.Fatal = func(err error) {
		s.network.cut.Store(true) // the process ends, and with it its word to the others
		s.fatal <- err
	}
	if c.adjust != nil {
		c.adjust(len(c.servers), &s.config)
	}
	c.servers = append(c.servers, s)
	c.start(s)
	return s
}

// start starts a server on its directory and address.
func (c *cluster) start(s *testServer) {
	c.t.Helper()
	listener, err := net.Listen("tcp", s.config.RPCAddress)
	if err != nil {
		c.t.Fatal(err)
	}
	s.config.RPCAddress = listener.Addr().String()
	s.config.RaftListener, s.grpc = Split(listener)
	s.config.wrapTransport = func(inner raft.Transport) raft.Transport {
		s.network = &network{Transport: inner, gate: make(chan struct{})}
		return s.network
	}
	if s.Server, err = Start(s.config); err != nil {
		c.t.Fatal(err)
	}
	s.down = false
}

func (c *cluster) shutdown(s *testServer) {
	c.t.Helper()
	if s.down {
		return
	}
	s.down = true
	s.network.open()
	if err := s.Shutdown(); err != nil {
		c.t.Error(err)
	}
	s.grpc.Close()
}

func (c *cluster) stop() {
	for _, s := range c.servers {
		if s.Server != nil {
			c.shutdown(s)
		}
	}
}

// leader waits for a leader that is ready for work.
func (c *cluster) leader() *testServer {
	c.t.Helper()
	var found *testServer
	c.eventually("a leader", func() bool {
		for _, s := range c.servers {
			if s.down || s.network.cut.Load() {
				continue
			}
			if l := s.leadership.Load(); l != nil {
				select {
				case <-l.ready:
					found = s
					return true
				default:
				}
			}
		}
		return false
	})
	return found
}

func (c *cluster) followers() (out []*testServer) {
	leader := c.leader()
	for _, s := range c.servers {
		if s != leader && !s.down {
			out = append(out, s)
		}
	}
	return out
}

func (c *cluster) eventually(what string, is func() bool) {
	c.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			c.t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}

func (c *cluster) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

// submit submits a job, as long as it takes to find a leader, and gives the index of its entry.
func (c *cluster) submit(name string) muster.Index {
	c.t.Helper()
	var index muster.Index
	c.eventually("a leader that takes a job", func() bool {
		reply, err := c.leader().Propose(c.context(), submission(name))
		if err != nil {
			if muster.KindOf(err) != muster.KindUnavailable {
				c.t.Fatal(err)
			}
			return false
		}
		if reply.Result.Err != nil {
			c.t.Fatal(reply.Result.Err)
		}
		index = muster.Index(reply.Index)
		return true
	})
	return index
}

// everywhere waits until all servers that are up have applied index, and checks that they agree.
func (c *cluster) everywhere(index muster.Index) {
	c.t.Helper()
	digests := map[muster.Index]uint64{}
	for _, s := range c.servers {
		if s.down {
			continue
		}
		if err := s.WaitApplied(c.context(), index); err != nil {
			c.t.Fatal(err)
		}
		now := s.hub.newest()
		if other, known := digests[now.index]; known && other != now.snapshot.Digest() {
			c.t.Fatalf("two servers differ at %d", now.index)
		}
		digests[now.index] = now.snapshot.Digest()
	}
}

// submission is a small job that pends.
func submission(name string) *wire.Command {
	return wire.CommandOf(&state.Submit{
		Header: state.Header{RequestID: fmt.Sprintf("%s-%d", name, requests.Add(1)), User: "ada"},
		Specs:  []*muster.JobSpec{smallJob(name)},
		Pend:   true,
	})
}

var requests atomic.Int64

func smallJob(name string) *muster.JobSpec {
	return &muster.JobSpec{
		Name: name, Queue: muster.DefaultQueue, Type: muster.Batch, Priority: 50,
		Groups: []muster.Group{{
			Name: name, Count: 1,
			Retry:      muster.Retry{Delay: 10 * time.Second, MaxDelay: time.Minute},
			Checkpoint: muster.Checkpoint{Grace: time.Second},
			Disconnect: muster.Disconnect{StopAfter: muster.DefaultLease},
			Task: muster.Task{
				Name: name, Command: "true", KillSignal: "SIGTERM", KillTimeout: 10 * time.Second, SuccessCodes: []int{0},
				Logs:      muster.Logs{MaxSize: 100 * muster.MiB, MaxFiles: 3},
				Resources: muster.Resources{GPUs: 1},
			},
		}},
	}
}

// network stands between a server's raft and its transport: it can be cut, and it can hold answers back at a gate.
type network struct {
	raft.Transport
	cut  atomic.Bool  // nothing goes out
	deaf atomic.Value // raft.ServerID: it gets no entries and no heartbeats

	campaigns atomic.Int64 // how often a peer was asked whether it would vote for this server

	mu      sync.Mutex
	holding bool
	held    map[raft.ServerID]int // answers that wait at the gate
	gate    chan struct{}
}

var errCut = errors.New("the network is cut")

// deafen keeps AppendEntries from reaching one peer; "" ends it.
func (n *network) deafen(id raft.ServerID) { n.deaf.Store(id) }

// hold keeps every answer to AppendEntries from here on, heartbeats included, at the gate.
func (n *network) hold() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holding, n.held = true, map[raft.ServerID]int{}
}

// turn gives a function that lets the answers go that wait now; those that come from here on wait behind another gate.
func (n *network) turn() (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.held)
	gate := n.gate
	n.gate = make(chan struct{})
	return func() { close(gate) }
}

// open lets everything through.
func (n *network) open() {
	n.mu.Lock()
	n.holding = false
	n.mu.Unlock()
	n.turn()()
}

// holds says whether answers of so many peers wait.
func (n *network) holds(peers int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.held) >= peers
}

func (n *network) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if deaf, _ := n.deaf.Load().(raft.ServerID); n.cut.Load() || deaf == id {
		return errCut
	}
	err := n.Transport.AppendEntries(id, to, args, resp)
	n.mu.Lock()
	gate := n.gate
	holding := n.holding
	if holding {
		n.held[id]++
	}
	n.mu.Unlock()
	if holding {
		<-gate
	}
	return err
}

func (n *network) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if n.cut.Load() {
		return errCut
	}
	return n.Transport.RequestVote(id, to, args, resp)
}

func (n *network) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	n.campaigns.Add(1)
	if n.cut.Load() {
		return errCut
	}
	return n.Transport.(raft.WithPreVote).RequestPreVote(id, to, args, resp)
}

func (n *network) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if n.cut.Load() {
		return errCut
	}
	return n.Transport.InstallSnapshot(id, to, args, resp, data)
}
