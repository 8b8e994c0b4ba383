package rpc_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// fakeCluster is a cluster that works, without raft: one list of entries, applied by the real state on each server.
type fakeCluster struct {
	t       testing.TB
	mu      sync.Mutex
	entries []state.Entry
	members []*fakeMember
	leader  int // -1: nobody
	term    uint64
	changed chan struct{}

	loseAnswers int // so many proposals commit, and their proposer never hears of it
}

// fakeMember is one server's Local.
type fakeMember struct {
	cluster *fakeCluster
	number  int
	name    string
	address string
	rpc     *rpc.Server

	mu       sync.Mutex
	state    *state.State
	snapshot *state.Snapshot
	applied  muster.Index
	frozen   bool // applies nothing
	moved    chan struct{}
	watches  map[int]fakeWatch
	nextID   int

	renewals [][]*wire.NodeRenew // at the leader, batch by batch
	deny     bool                // renewals
	reads    int                 // calls of ReadIndex
	slow     chan struct{}       // when set, ReadIndex waits for it
	suspects []*wire.Suspect
}

type fakeWatch struct {
	jobs  []muster.JobID
	nodes []muster.NodeID
	wake  chan struct{}
}

const agentUser = "agent"

// firstStamp is the time of the first entry; each later one is a second later.
var firstStamp = time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)

// startCluster starts n servers on loopback; the first leads.
func startCluster(t testing.TB, n int) *fakeCluster {
	t.Helper()
	c := &fakeCluster{t: t, changed: make(chan struct{}), leader: -1}
	for i := range n {
		m := &fakeMember{cluster: c, number: i, name: fmt.Sprintf("s%d", i+1), state: state.New(), moved: make(chan struct{}),
			watches: make(map[int]fakeWatch)}
		m.snapshot = m.state.Snapshot()
		c.members = append(c.members, m)
		m.start("127.0.0.1:0")
	}
	c.commit(&state.InitCluster{ClusterID: "test"})
	c.elect(0)
	return c
}

// start serves on address and stops with the test.
func (m *fakeMember) start(address string) {
	t := m.cluster.t
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	m.address = l.Addr().String()
	server := rpc.NewServer(rpc.Config{Local: m, User: agentUser, Logger: hclog.NewNullLogger()})
	m.rpc = server
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l, nil) }()
	t.Cleanup(func() { server.Stop(); <-served })
}

func (c *fakeCluster) addresses() []string {
	var list []string
	for _, m := range c.members {
		list = append(list, m.address)
	}
	return list
}

// client talks to the cluster, to its servers in the order given (none: all).
func (c *fakeCluster) client(options rpc.Options, servers ...int) *rpc.Client {
	c.t.Helper()
	addresses := c.addresses()
	if len(servers) > 0 {
		addresses = nil
		for _, s := range servers {
			addresses = append(addresses, c.members[s].address)
		}
	}
	client, err := rpc.Dial(addresses, options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// elect makes a server the leader; -1: nobody.
func (c *fakeCluster) elect(leader int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = leader
	c.term++
	close(c.changed)
	c.changed = make(chan struct{})
}

// commit appends one command and gives its result.
func (c *fakeCluster) commit(command state.Command) (state.Result, muster.Index) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp := muster.TimeOf(firstStamp.Add(time.Duration(len(c.entries)) * time.Second))
	c.entries = append(c.entries, state.Entry{Stamp: stamp, Commands: []state.Command{command}})
	var result state.Result
	for _, m := range c.members {
		if r, ok := m.advance(c.entries, c.term); ok {
			result = r
		}
	}
	return result, muster.Index(len(c.entries))
}

// advance applies what is new, unless frozen, and gives the last result.
func (m *fakeMember) advance(entries []state.Entry, term uint64) (last state.Result, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.frozen {
		return last, false
	}
	for int(m.applied) < len(entries) {
		results, changed := m.state.Apply(entries[m.applied], m.applied+1, term)
		m.applied++
		m.snapshot = m.state.Snapshot()
		last, ok = results[len(results)-1], true
		for _, w := range m.watches {
			if w.wants(changed) {
				select {
				case w.wake <- struct{}{}:
				default:
				}
			}
		}
	}
	m.signal()
	return last, ok
}

// signal wakes who waits for anything of this member; mu is held.
func (m *fakeMember) signal() {
	close(m.moved)
	m.moved = make(chan struct{})
}

func (w fakeWatch) wants(c state.Changed) bool {
	if w.jobs == nil && w.nodes == nil {
		return true
	}
	return slices.ContainsFunc(c.Jobs, func(id muster.JobID) bool { return slices.Contains(w.jobs, id) }) ||
		slices.ContainsFunc(c.Nodes, func(id muster.NodeID) bool { return slices.Contains(w.nodes, id) })
}

func (m *fakeMember) freeze(frozen bool) {
	m.mu.Lock()
	m.frozen = frozen
	m.mu.Unlock()
	if !frozen {
		m.cluster.mu.Lock()
		defer m.cluster.mu.Unlock()
		m.advance(m.cluster.entries, m.cluster.term)
	}
}

func (m *fakeMember) leads() error {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if m.cluster.leader != m.number {
		return muster.Errorf(muster.KindUnavailable, "not the leader")
	}
	return nil
}

func (m *fakeMember) Propose(_ context.Context, command *wire.Command) (*wire.ProposeReply, error) {
	if err := m.leads(); err != nil {
		return nil, err
	}
	c, err := command.Domain()
	if err != nil {
		return nil, err
	}
	result, index := m.cluster.commit(c)
	m.cluster.mu.Lock()
	lost := m.cluster.loseAnswers > 0
	if lost {
		m.cluster.loseAnswers--
	}
	m.cluster.mu.Unlock()
	if lost {
		return nil, muster.Errorf(muster.KindUnavailable, "leadership lost on the way")
	}
	return &wire.ProposeReply{Result: wire.ResultOf(&result), Index: uint64(index)}, nil
}

func (m *fakeMember) ReadIndex(ctx context.Context) (muster.Index, error) {
	if err := m.leads(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	m.reads++
	slow := m.slow
	m.signal()
	m.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	return muster.Index(len(m.cluster.entries)), nil
}

func (m *fakeMember) WaitApplied(ctx context.Context, index muster.Index) error {
	for {
		m.mu.Lock()
		applied, moved := m.applied, m.moved
		m.mu.Unlock()
		if applied >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *fakeMember) Read() *wire.Reader {
	m.mu.Lock()
	defer m.mu.Unlock()
	return wire.ReaderOf(m.snapshot)
}

func (m *fakeMember) Watch(jobs []muster.JobID, nodes []muster.NodeID) (<-chan struct{}, func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := fakeWatch{jobs, nodes, make(chan struct{}, 1)}
	id := m.nextID
	m.nextID++
	m.watches[id] = w
	return w.wake, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watches, id)
	}
}

func (m *fakeMember) Renew(_ context.Context, batch *wire.RenewBatch) (*wire.RenewBatchReply, error) {
	if err := m.leads(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewals = append(m.renewals, batch.Renewals)
	reply := &wire.RenewBatchReply{Index: uint64(m.applied)}
	for range batch.Renewals {
		reply.Ok = append(reply.Ok, !m.deny)
	}
	m.signal()
	return reply, nil
}

func (m *fakeMember) Explain(_ context.Context, job muster.JobID) (*wire.WhyReply, error) {
	if err := m.leads(); err != nil {
		return nil, err
	}
	return &wire.WhyReply{Position: 3, Of: 14, Headline: "said by " + m.name}, nil
}

func (m *fakeMember) Suspects(context.Context) (*wire.SuspectsReply, error) {
	if err := m.leads(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return &wire.SuspectsReply{Nodes: m.suspects}, nil
}

func (m *fakeMember) Leader() (string, bool) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if m.cluster.leader < 0 {
		return "", false
	}
	return m.cluster.members[m.cluster.leader].address, m.cluster.leader == m.number
}

func (m *fakeMember) LeaderChanged() <-chan struct{} {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	return m.cluster.changed
}

func (m *fakeMember) Status() *wire.ServerInfo {
	_, self := m.Leader()
	m.mu.Lock()
	defer m.mu.Unlock()
	return &wire.ServerInfo{Id: "id-" + m.name, Name: m.name, Address: m.address, Leader: self, AppliedIndex: uint64(m.applied),
		Digest: fmt.Sprintf("%016x", m.snapshot.Digest()), Cluster: m.snapshot.Cluster().ID, Version: "test"}
}

func (m *fakeMember) Servers() []*wire.ServerInfo {
	var list []*wire.ServerInfo
	for _, other := range m.cluster.members {
		list = append(list, &wire.ServerInfo{Id: "id-" + other.name, Name: other.name, Address: other.address, Voter: true})
	}
	return list
}

// eventually waits until what the members tell of themselves makes ok true.
func (m *fakeMember) eventually(what string, ok func() bool) {
	m.cluster.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		m.mu.Lock()
		good, moved := ok(), m.moved
		m.mu.Unlock()
		if good {
			return
		}
		select {
		case <-moved:
		case <-deadline:
			m.cluster.t.Fatalf("it never came to it: %s", what)
		}
	}
}

// jobs gives the ids of all jobs that a server knows.
func (m *fakeMember) jobs() []muster.JobID {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make(map[muster.JobID]bool)
	for job := range m.snapshot.Jobs(0) {
		ids[job.ID] = true
	}
	return slices.Sorted(maps.Keys(ids))
}

func specNamed(name string) *wire.JobSpec {
	spec := muster.DefaultJobSpec()
	spec.Name = name
	group := muster.DefaultGroup()
	group.Task.Command = "true"
	group.Task.Dir = "/tmp"
	spec.Groups = []muster.Group{group}
	return wire.JobSpecOf(&spec)
}

func submission(names ...string) *wire.SubmitRequest {
	r := &wire.SubmitRequest{Pend: true}
	for _, name := range names {
		r.Specs = append(r.Specs, specNamed(name))
	}
	return r
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
