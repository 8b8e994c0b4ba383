package worker

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
	"github.com/musterhpc/muster/worker/step"
)

const lease = 30 * time.Second

// node is a worker under test: its data directory and its machine outlive its agents.
type node struct {
	t       testing.TB
	dir     string
	machine *machine
	servers []string
	real    bool // its supervisor and tasks are processes
	metrics *Metrics
	address string // of the newest agent's listener
}

func newNode(t *testing.T, servers ...*testServer) *node {
	n := &node{t: t, dir: t.TempDir(), machine: newMachine()}
	for _, s := range servers {
		n.servers = append(n.servers, s.address)
	}
	return n
}

func (n *node) config() Config {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	n.address = l.Addr().String()
	c := Config{
		Name: "node-1", DataDir: n.dir, RunDir: n.dir, Listener: l, Servers: n.servers, Dial: dial,
		Simulate: &Simulated{GPUs: 8}, AllowRoot: true, host: n.machine, Metrics: n.metrics,
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: &testLog{t: n.t}}),
	}
	if n.real {
		c.host = nil
		if c.Binary, err = os.Executable(); err != nil {
			n.t.Fatal(err)
		}
	}
	return c
}

type testLog struct{ t testing.TB }

func (l *testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// agent starts an agent; the function it gives ends it, as kill -9 would as far as the machine is concerned.
func (n *node) agent() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	c := n.config()
	go func() { done <- Run(ctx, c) }()
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	}
	n.t.Cleanup(end)
	return end
}

// lone is a job of one rank, which may start with its placement.
func lone(id muster.AllocID) *wire.Desired {
	spec := &muster.JobSpec{Name: "hello", Queue: "default", Type: muster.Batch, Groups: []muster.Group{{
		Name: "hello", Count: 1, Task: muster.Task{Name: "main", Command: "true", Resources: muster.Resources{GPUs: 2}}}}}
	return &wire.Desired{
		Alloc: wire.AllocationOf(&muster.Allocation{ID: id, Job: muster.JobID(1000 + id.Counter), Attempt: 1, Node: 1,
			Slots: 0b11, MilliCores: 16_000, Memory: 64 * muster.GiB, Port: 20000, Lease: lease, Phase: muster.AllocPlaced, Go: true}),
		Spec: wire.JobSpecOf(spec), User: "ann", Queue: "default", JobName: "hello",
		Peers: []*wire.Peer{{Node: "node-1", Ip: "127.0.0.1", Gpus: 2, MilliCores: 16_000, Port: 20000}},
	}
}

func gang(id muster.AllocID, open bool) *wire.Desired {
	d := lone(id)
	d.Alloc.Go = open
	return d
}

func stopped(d *wire.Desired, stop muster.Stop) *wire.Desired {
	d.Alloc.Stop = wire.StopOf(stop)
	return d
}

// run brings an allocation to running in a fresh session.
func (n *node) run(s *testServer, id muster.AllocID) *conversation {
	n.t.Helper()
	c := s.accept(n.t)
	c.welcome()
	c.view(at(10), true, nil, lone(id))
	c.renewed(c.awaitRenew(id))
	n.machine.awaitRunning(n.t, id)
	r, _ := c.awaitReport(id, muster.AllocRunning)
	c.ack(r.GetSeq())
	return c
}

func TestARankRunsEndsIsReportedAndForgotten(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := n.run(s, id(1))
	if g := c.hello.GetNode(); len(g.GetGpus()) != 8 || g.GetMilliCores() != 64_000 || g.GetFencing() != "strong" ||
		g.GetName() != "node-1" || g.GetPortLow() != 20000 || !strings.HasPrefix(g.GetHardware(), "simulated-") {
		t.Errorf("the hello describes the node as %v", g)
	}
	n.machine.exit(id(1), 3)
	report, ended := c.awaitReport(id(1), muster.AllocEnded)
	if ended.Class != muster.ClassExit || ended.ExitCode != 3 || ended.Running != 5000 || ended.Ended != 9000 {
		t.Errorf("%+v", ended)
	}
	c.ack(report.GetSeq())
	c.view(at(12), false, []muster.AllocID{id(1)})
	n.machine.await(t, "the supervisor has forgotten", func() bool { return len(n.machine.tasks) == 0 && len(n.machine.kept) == 0 })
}

func TestAReadyRankWaitsForTheBarrier(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := s.accept(t)
	c.welcome()
	c.view(at(10), true, nil, gang(id(1), false))
	report, _ := c.awaitReport(id(1), muster.AllocReady) // answers the renewal on the way
	c.ack(report.GetSeq())
	if len(n.machine.starts()) != 0 {
		t.Error("started before the barrier opened")
	}
	c.view(at(11), false, nil, gang(id(1), true))
	n.machine.awaitRunning(t, id(1))
}

// The first lease comes from an answered renewal that names the allocation, counted from when it was sent.
func TestNothingStartsBeforeARenewalThatNamesItIsAnswered(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := s.accept(t)
	c.welcome()
	idle := c.awaitRenew(muster.AllocID{})
	sent := n.machine.now()
	c.view(at(10), true, nil, lone(id(1)))
	first := c.awaitRenew(id(1))
	c.renewed(idle) // names nothing: it gives no lease
	n.machine.await(t, "prepared", func() bool { return n.machine.tasks[id(1)] != nil })
	n.machine.pass(3 * time.Second) // the answer takes its time
	if len(n.machine.starts()) != 0 {
		t.Fatal("started without a lease")
	}
	c.renewed(first)
	n.machine.awaitRunning(t, id(1))
	n.machine.await(t, "the lease counts from the sending", func() bool { return n.machine.tasks[id(1)].end == sent.Add(lease) })
}

// A renewal that was on its way to a leader that died is never answered. The next one comes soon, over the same stream.
func TestALostRenewalIsSentAgain(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := s.accept(t)
	c.welcome()
	c.view(at(10), true, nil, lone(id(1)))
	c.awaitRenew(id(1)) // and no answer
	c.renewed(c.awaitRenew(id(1)))
	n.machine.awaitRunning(t, id(1))
}

func TestARankWhoseLeaseRanOutBeforeTheBarrierOpenedWaitsForANewOne(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := s.accept(t)
	c.welcome()
	c.view(at(10), true, nil, gang(id(1), false))
	report, _ := c.awaitReport(id(1), muster.AllocReady)
	c.ack(report.GetSeq())
	c.send(&wire.ToWorker{Message: &wire.ToWorker_Error{Error: &wire.Error{Message: "going down"}}})
	c.awaitOver()
	c = s.accept(t)
	n.machine.pass(lease - 2*time.Second) // what is left is the time to kill in
	c.welcome()
	c.view(at(11), true, nil, gang(id(1), true), gang(id(2), false))
	var again *wire.Renew
	for looked := false; again == nil || !looked; {
		r := c.next().GetRenew()
		if r != nil && names(r, id(1)) {
			again = r
		}
		looked = looked || r != nil && names(r, id(2)) // so the view was
	}
	if n.machine.starts()[id(1)] != 0 {
		t.Fatal("started with a lease that is over")
	}
	c.renewed(again)
	n.machine.awaitRunning(t, id(1))
}

func TestAServerFrozenInThePastStartsAndKillsNothing(t *testing.T) {
	now, frozen := serve(t), serve(t)
	n := newNode(t, now)
	n.agent()
	c := now.accept(t)
	c.send(&wire.ToWorker{Message: &wire.ToWorker_Welcome{Welcome: &wire.Welcome{
		Node: 1, Cluster: "cluster-one", Servers: []string{now.address, frozen.address}}}})
	c.view(at(100), true, nil, lone(id(1)))
	c.renewed(c.awaitRenew(id(1)))
	n.machine.awaitRunning(t, id(1))

	for range 2 { // whichever server it tries first
		c.send(&wire.ToWorker{Message: &wire.ToWorker_Error{Error: &wire.Error{Message: "going down"}}})
		c.awaitOver()
		select {
		case c = <-frozen.sessions:
			c.t = t
		case c = <-now.sessions:
			c.t = t
			continue
		case <-time.After(patient):
			t.Fatal("the worker does not come back")
		}
		break
	}
	if seen, err := c.hello.GetSeen().Domain(); err != nil || seen != at(100) {
		t.Errorf("it says that it has seen %v, %v", seen, err)
	}
	// Before the first allocation was placed; another one runs there, as it was then.
	c.welcome()
	c.view(at(50), true, nil, lone(id(7)))
	c.awaitOver()
	again := now.accept(t)
	if r := find(t, again.hello.GetAllocs(), id(1)); r.Phase != muster.AllocRunning {
		t.Errorf("after the frozen server it says of the task: %+v", r)
	}
	if starts := n.machine.starts(); len(starts) != 1 || starts[id(1)] != 1 {
		t.Errorf("started: %v", starts)
	}
}

func TestAReportIsSaidAgainUntilItIsAcknowledged(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := n.run(s, id(1))
	n.machine.exit(id(1), 0)
	c.awaitReport(id(1), muster.AllocEnded) // and no acknowledgement
	for range 2 {
		c.send(&wire.ToWorker{Message: &wire.ToWorker_Error{Error: &wire.Error{Message: "not the leader any more"}}})
		c.awaitOver()
		c = s.accept(t)
		if r := find(t, c.hello.GetAllocs(), id(1)); r.Phase != muster.AllocEnded || r.Running == 0 {
			t.Errorf("the next hello says: %+v", r)
		}
	}
	c.welcome(id(1)) // the state has it
	n.machine.await(t, "forgotten", func() bool { return len(n.machine.tasks) == 0 })
	c.view(at(20), true, nil)
	c.send(&wire.ToWorker{Message: &wire.ToWorker_Error{Error: &wire.Error{Message: "bye"}}})
	if c = s.accept(t); len(c.hello.GetAllocs()) != 0 {
		t.Errorf("still says: %v", c.hello.GetAllocs())
	}
}

func TestReportsGatherWhileOneIsOnItsWay(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := s.accept(t)
	c.welcome()
	c.view(at(10), true, nil, lone(id(1)), lone(id(2)), lone(id(3)))
	c.renewed(c.awaitRenew(id(1))) // names all three
	var first *wire.Report
	for first == nil {
		first = c.next().GetReport()
	}
	for i := range uint64(3) {
		n.machine.awaitRunning(t, id(i+1))
	}
	for i := range uint64(3) {
		n.machine.exit(id(i+1), 0)
	}
	c.view(at(11), false, nil, gang(id(4), false)) // once this is asked for, the ends are known
	c.renewed(c.awaitRenew(id(4)))
	c.ack(first.GetSeq())
	var second *wire.Report
	for second == nil {
		second = c.next().GetReport()
	}
	if second.GetSeq() != first.GetSeq()+1 || find(t, second.GetAllocs(), id(1)).Phase != muster.AllocEnded {
		t.Errorf("the second report: %v", second)
	}
}

func TestWhatIsGoneForTheServersIsKilled(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := n.run(s, id(1))
	c.view(at(11), false, nil, lone(id(2)))
	c.renewed(c.awaitRenew(id(2)))
	n.machine.awaitRunning(t, id(2))
	c.view(at(12), false, []muster.AllocID{id(1)})
	n.machine.await(t, "the first forgotten", func() bool { return n.machine.tasks[id(1)] == nil })
	c.view(at(13), true, nil) // a full view without it
	n.machine.await(t, "the second forgotten", func() bool { return len(n.machine.tasks) == 0 })
}

func TestAStopIsHandedToTheSupervisorAndGrowsStronger(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := n.run(s, id(1))
	save := muster.Stop{Mode: muster.StopSave, Class: muster.ClassCancelled, Reason: "cancelled by ann"}
	c.view(at(11), false, nil, stopped(lone(id(1)), save))
	report, _ := c.awaitReport(id(1), muster.AllocStopping)
	c.ack(report.GetSeq())
	kill := save
	kill.Mode = muster.StopKill
	c.view(at(12), false, nil, stopped(lone(id(1)), kill))
	_, ended := c.awaitReport(id(1), muster.AllocEnded)
	if ended.Class != muster.ClassCancelled || ended.Message != "cancelled by ann" {
		t.Errorf("%+v", ended)
	}
}

func TestAStopBeforeTheStartEndsItUnstarted(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := s.accept(t)
	c.welcome()
	c.view(at(10), true, nil, stopped(lone(id(1)), muster.Stop{Mode: muster.StopSave, Class: muster.ClassCancelled, Reason: "by ann"}))
	_, ended := c.awaitReport(id(1), muster.AllocEnded)
	if ended.Class != muster.ClassCancelled || ended.Message != "by ann" || len(n.machine.starts()) != 0 {
		t.Errorf("%+v, started %v", ended, n.machine.starts())
	}
}

func TestWhatCannotBePreparedSaysWhy(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.machine.prepareFails = "folder /data/train does not exist on node-1"
	n.agent()
	c := s.accept(t)
	c.welcome()
	c.view(at(10), true, nil, lone(id(1)))
	if _, ended := c.awaitReport(id(1), muster.AllocEnded); ended.Class != muster.ClassPrepare ||
		ended.Message != "folder /data/train does not exist on node-1" {
		t.Errorf("%+v", ended)
	}
}

func TestATakenMasterPortIsAMatterOfPreparing(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.machine.portTaken = "port 20000, the job's master port, is taken by another program"
	n.agent()
	c := s.accept(t)
	c.welcome()
	c.view(at(10), true, nil, lone(id(1)))
	if _, ended := c.awaitReport(id(1), muster.AllocEnded); ended.Class != muster.ClassPrepare ||
		ended.Message != "node node-1: port 20000, the job's master port, is taken by another program" {
		t.Errorf("%+v", ended)
	}
}

func TestOnlyAListenerTakesAPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	h := new(linuxHost)
	if err := h.portFree(port); err == nil || !strings.Contains(err.Error(), "is taken by another program") {
		t.Errorf("somebody listens there: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.portFree(port); err != nil {
		t.Error(err)
	}
}

func TestAnotherClustersServerIsRefused(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := n.run(s, id(1))
	c.send(&wire.ToWorker{Message: &wire.ToWorker_Error{Error: &wire.Error{Message: "bye"}}})
	c = s.accept(t)
	c.send(&wire.ToWorker{Message: &wire.ToWorker_Welcome{Welcome: &wire.Welcome{
		Node: 1, Cluster: "cluster-two", Kill: wire.AllocIDsOf([]muster.AllocID{id(1)})}}})
	c.awaitOver()
	if r := find(t, s.accept(t).hello.GetAllocs(), id(1)); r.Phase != muster.AllocRunning {
		t.Errorf("the other cluster's word counted: %+v", r)
	}
}

func TestASilentServerIsLeftForAnother(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	c := s.accept(t)
	c.welcome()
	c.awaitRenew(muster.AllocID{}) // and no answer
	n.machine.pass(step.Patience(0) + time.Second)
	c.awaitOver()
	s.accept(t).welcome()
}

func TestTwoAgentsDoNotShareADataDirectory(t *testing.T) {
	s := serve(t)
	n := newNode(t, s)
	n.agent()
	s.accept(t)
	if err := Run(context.Background(), n.config()); err == nil || !strings.Contains(err.Error(), "another worker runs in") {
		t.Error(err)
	}
}

func TestRootRunsNothingUnlessItIsAllowed(t *testing.T) {
	if why := refusal(&Config{Name: "node-1"}, account{Root: true}); !strings.Contains(why, "allow_root = true") {
		t.Errorf("root runs tasks: %q", why)
	}
	for _, may := range []string{refusal(&Config{AllowRoot: true}, account{Root: true}), refusal(&Config{}, account{})} {
		if may != "" {
			t.Error(may)
		}
	}
}

func TestOldDirectoriesAreRemovedAndCheckpointsStay(t *testing.T) {
	store, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	a := &Agent{store: store, log: hclog.NewNullLogger(), cfg: Config{DataDir: store.dir, KeepFor: 24 * time.Hour}}
	a.machine = step.New(step.Self{}, &hands{a, t.Context()}, step.NewHistory(), []exec.Status{{Alloc: id(3)}}, nil)
	now := time.Now()
	for path, age := range map[string]time.Duration{
		"tasks/1-1": 25 * time.Hour, "tasks/1-2": 23 * time.Hour, "tasks/1-3": 99 * time.Hour, "logs/1-1": 25 * time.Hour,
		"logs/notes": 99 * time.Hour, "checkpoints/7": 99 * time.Hour, "checkpoints/8/epoch-1": 99 * time.Hour, "tasks/1-4/locked": 0,
	} {
		p := store.path(path)
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(p, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"checkpoints/8", "tasks/1-4"} {
		if err := os.Chtimes(store.path(p), now.Add(-99*time.Hour), now.Add(-99*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	a.sweep(context.Background(), now)
	a.work.Wait()
	for path, stays := range map[string]bool{
		"tasks/1-1": false, "tasks/1-2": true, "tasks/1-3": true, "logs/1-1": false, "logs/notes": true, "tasks/1-4": false,
		"checkpoints/7": false, "checkpoints/8/epoch-1": true,
	} {
		if _, err := os.Stat(store.path(path)); (err == nil) != stays {
			t.Errorf("%s: %v", path, err)
		}
	}
}

var _ host = (*machine)(nil)
var _ Supervisor = (*exec.Supervisor)(nil)
