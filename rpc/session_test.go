package rpc_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// fakeWorker is the worker's end of a session.
type fakeWorker struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[wire.FromWorker, wire.ToWorker]
	hangUp context.CancelFunc
	seen   *wire.Version
}

func grpcPlain() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
}

func connectTo(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpcPlain()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func nodeNamed(name, address string) *muster.Node {
	n := &muster.Node{Name: name, Address: address, IP: "127.0.0.1", Hardware: "hw-" + name, Boot: "boot-1", Instance: "i-" + name,
		Session: "session-" + name, MilliCores: 64_000, Memory: 512 * muster.GiB, Fencing: "strong", Version: "test",
		PortLow: 20_000, PortHigh: 29_999}
	for i := range 8 {
		n.GPUs = append(n.GPUs, muster.GPU{UUID: "GPU-" + name + "-" + string(rune('0'+i)), Model: "NVIDIA H100 80GB HBM3",
			Memory: 80 * muster.GiB, Health: muster.GPUHealthy})
	}
	return n
}

// worker opens a session at a server and says hello, with what it runs.
func (c *fakeCluster) worker(server int, name string, seen muster.Version, runs ...*wire.AllocReport) *fakeWorker {
	c.t.Helper()
	ctx, cancel := context.WithCancel(soon(c.t))
	stream, err := wire.NewWorkersClient(connectTo(c.t, c.members[server].address)).Session(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	w := &fakeWorker{t: c.t, stream: stream, hangUp: cancel}
	w.say(&wire.FromWorker{Message: &wire.FromWorker_Hello{Hello: &wire.RegisterNode{
		Node: wire.NodeOf(nodeNamed(name, "127.0.0.1:1")), Seen: wire.VersionOf(seen), Allocs: runs}}})
	return w
}

func (w *fakeWorker) say(m *wire.FromWorker) {
	w.t.Helper()
	if err := w.stream.Send(m); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fakeWorker) hear() *wire.ToWorker {
	w.t.Helper()
	m, err := w.stream.Recv()
	if err != nil {
		w.t.Fatalf("the session ended: %v", wire.FromStatus(err))
	}
	return m
}

func (w *fakeWorker) welcome() *wire.Welcome {
	w.t.Helper()
	m := w.hear()
	if m.GetWelcome() == nil {
		w.t.Fatalf("want a welcome, got %v", m)
	}
	return m.GetWelcome()
}

// view skips to the next view, which must not be older than the one before.
func (w *fakeWorker) view() *wire.View {
	w.t.Helper()
	for {
		if v := w.hear().GetView(); v != nil {
			if v.Version.Index < w.seen.GetIndex() {
				w.t.Fatalf("a view of %v after one of %v", v.Version, w.seen)
			}
			w.seen = v.Version
			return v
		}
	}
}

// place starts an attempt of a job on a node, as the scheduler would.
func (c *fakeCluster) place(job uint64, attempt uint32, node uint32) {
	c.t.Helper()
	c.placeRank(job, attempt, state.RankPlacement{Node: muster.NodeID(node), MilliCores: 1000, Memory: 4 * muster.GiB})
}

func (c *fakeCluster) placeRank(job uint64, attempt uint32, rank state.RankPlacement) {
	c.t.Helper()
	c.mu.Lock()
	term := c.term
	c.mu.Unlock()
	result, _ := c.commit(&state.CommitPlan{Term: term, Gangs: []state.GangPlacement{{Job: muster.JobID(job), Attempt: attempt,
		Ranks: []state.RankPlacement{rank}}}})
	if result.Err != nil || len(result.Refused) > 0 {
		c.t.Fatalf("job %d was not placed: %v %v", job, result.Err, result.Refused)
	}
}

func report(seq uint64, alloc *wire.AllocID, phase muster.AllocPhase) *wire.FromWorker {
	r := &wire.AllocReport{Id: alloc, Phase: uint32(phase)}
	if phase >= muster.AllocRunning {
		r.Running = time.Now().UnixMilli()
	}
	if phase == muster.AllocEnded {
		r.Ended = time.Now().UnixMilli()
	}
	return &wire.FromWorker{Message: &wire.FromWorker_Report{Report: &wire.Report{Seq: seq, Allocs: []*wire.AllocReport{r}}}}
}

func TestAWorkerIsToldWhatToRunAndItsReportsReachTheState(t *testing.T) {
	c := startCluster(t, 3)
	for server := range c.members { // the leader, and followers that pass on
		client := c.client(rpc.Options{}, server)
		name := c.members[server].name + "-w"
		w := c.worker(server, name, muster.Version{})
		hello := w.welcome()
		if hello.Node == 0 || hello.Cluster != "test" || !slices.Equal(hello.Servers, c.addresses()) {
			t.Errorf("welcome: %v", hello)
		}
		if v := w.view(); !v.Full || len(v.Desired) != 0 {
			t.Errorf("the first view is %v, want an empty full one", v)
		}
		made, err := client.Submit(soon(t), submission("job"))
		if err != nil {
			t.Fatal(err)
		}
		c.place(made.Ids[0], 1, hello.Node)
		v := w.view()
		if v.Full || len(v.Desired) != 1 || v.Desired[0].Alloc.Job != made.Ids[0] || v.Desired[0].Spec.GetName() != "job" || v.Desired[0].User != agentUser {
			t.Fatalf("after the placement: %v", v)
		}
		alloc := v.Desired[0].Alloc.Id
		w.say(report(1, alloc, muster.AllocRunning))
		w.say(report(2, alloc, muster.AllocEnded))
		acked := uint64(0)
		for gone := false; acked < 2 || !gone; {
			m := w.hear()
			acked = max(acked, m.GetAck().GetSeq())
			gone = gone || len(m.GetView().GetGone()) == 1
		}
		job, err := client.GetJob(soon(t), &wire.GetJobRequest{Job: &wire.JobRef{Id: made.Ids[0]}})
		if err != nil || job.State != "succeeded" {
			t.Errorf("the job is %v, %v", job, err)
		}
		w.hangUp()
	}
}

func TestRenewalsAreAnsweredAndABrokenStreamIsTold(t *testing.T) {
	c := startCluster(t, 2)
	leader := c.members[0]
	w := c.worker(1, "w1", muster.Version{})
	node := w.welcome().Node
	for seq := uint64(1); seq <= 3; seq++ {
		w.say(&wire.FromWorker{Message: &wire.FromWorker_Renew{Renew: &wire.Renew{Seq: seq}}})
		for w.hear().GetRenewed().GetSeq() != seq {
		}
	}
	w.hangUp()
	leader.eventually("the leader hears that w1 is silent", func() bool {
		return slices.ContainsFunc(leader.renewals, func(batch []*wire.NodeRenew) bool {
			return slices.ContainsFunc(batch, func(r *wire.NodeRenew) bool { return r.Silent && r.Node == node && r.Session == "session-w1" })
		})
	})
}

// Else a server whose state stands still would keep alive what was cancelled long ago.
func TestAServerThatLagsPassesNoRenewalOn(t *testing.T) {
	c := startCluster(t, 2)
	made, err := c.client(rpc.Options{}, 0).Submit(soon(t), submission("train"))
	if err != nil {
		t.Fatal(err)
	}
	w := c.worker(1, "w1", muster.Version{})
	w.welcome()
	w.view()
	c.place(made.Ids[0], 1, 1)
	w.view()
	c.members[1].freeze(true)
	c.commit(&state.Cancel{Jobs: []muster.JobID{muster.JobID(made.Ids[0])}, Mode: muster.StopKill})
	w.say(&wire.FromWorker{Message: &wire.FromWorker_Renew{Renew: &wire.Renew{Seq: 1}}})
	c.members[0].eventually("the renewal reaches the leader", func() bool { return len(c.members[0].renewals) > 0 })
	heard := make(chan *wire.ToWorker, 1)
	go func() {
		m, _ := w.stream.Recv()
		heard <- m
	}()
	select {
	case m := <-heard:
		t.Fatalf("a server that lags behind the leader said %v", m)
	case <-time.After(100 * time.Millisecond):
	}
	c.members[1].freeze(false)
	stopped, renewed := false, false
	for m := <-heard; ; m = w.hear() {
		renewed = renewed || m.GetRenewed() != nil
		stopped = stopped || m.GetView() != nil && m.GetView().Desired[0].Alloc.GetStop().GetMode() == uint32(muster.StopKill)
		if renewed && stopped {
			return
		}
	}
}

func TestASessionThatIsNoLongerTheNewestEnds(t *testing.T) {
	c := startCluster(t, 2)
	c.members[0].mu.Lock()
	c.members[0].deny = true
	c.members[0].mu.Unlock()
	w := c.worker(1, "w1", muster.Version{})
	w.welcome()
	w.say(&wire.FromWorker{Message: &wire.FromWorker_Renew{Renew: &wire.Renew{Seq: 1}}})
	for {
		m, err := w.stream.Recv()
		if err != nil {
			if muster.KindOf(wire.FromStatus(err)) != muster.KindConflict {
				t.Errorf("it ended with %v", err)
			}
			return
		}
		if e := m.GetError(); e != nil && e.Kind != string(muster.KindConflict) {
			t.Errorf("it was told %v", e)
		}
	}
}

func TestAHelloThatAnotherHasOvertakenIsRefused(t *testing.T) {
	c := startCluster(t, 2)
	c.members[1].freeze(true) // it does not know of the other yet, as a server whose hello took long
	newer := nodeNamed("w1", "127.0.0.1:1")
	newer.Session = "session-newer"
	c.commit(&state.RegisterNode{Node: *newer})
	w := c.worker(1, "w1", muster.Version{})
	m := w.hear()
	if e := m.GetError(); e == nil || e.Kind != string(muster.KindUnavailable) || !strings.Contains(e.Message, "another session") {
		t.Errorf("it was told %v", m)
	}
}

func TestANewerStreamOfANodeEndsTheOlder(t *testing.T) {
	c := startCluster(t, 1)
	first := c.worker(0, "w1", muster.Version{})
	first.welcome()
	first.view()
	second := c.worker(0, "w1", muster.Version{})
	second.welcome()
	second.view()
	for {
		if _, err := first.stream.Recv(); err != nil {
			break
		}
	}
	second.say(&wire.FromWorker{Message: &wire.FromWorker_Renew{Renew: &wire.Renew{Seq: 1}}})
	for second.hear().GetRenewed() == nil {
	}
}

func TestAServerBehindWhatTheWorkerHasSeenWaitsBeforeItSpeaks(t *testing.T) {
	c := startCluster(t, 3)
	behind := c.members[2]
	w := c.worker(0, "w1", muster.Version{})
	w.welcome()
	w.view()
	made, err := c.client(rpc.Options{}, 0).Submit(soon(t), submission("kept"))
	if err != nil {
		t.Fatal(err)
	}
	behind.freeze(true)
	c.place(made.Ids[0], 1, 1)
	placed := w.view()
	w.hangUp()

	again := c.worker(2, "w1", muster.Version{Epoch: muster.Epoch(placed.Version.Epoch), Index: muster.Index(placed.Version.Index)},
		&wire.AllocReport{Id: placed.Desired[0].Alloc.Id, Phase: uint32(muster.AllocPreparing)})
	heard := make(chan *wire.ToWorker, 1)
	go func() {
		m, _ := again.stream.Recv()
		heard <- m
	}()
	select {
	case m := <-heard:
		t.Fatalf("a server that lags behind the worker said %v", m)
	case <-time.After(100 * time.Millisecond):
	}
	behind.freeze(false)
	if m := <-heard; m.GetWelcome() == nil {
		t.Fatalf("after catching up it said %v", m)
	}
	if v := again.view(); len(v.Desired) != 1 || v.Version.Index < placed.Version.Index {
		t.Errorf("the first view is %v", v)
	}
}

func TestAServerThatStaysBehindSendsTheWorkerElsewhere(t *testing.T) {
	c := startCluster(t, 2)
	c.members[1].freeze(true)
	w := c.worker(1, "w1", muster.Version{Epoch: c.members[1].Read().Version().Epoch, Index: 1000})
	var told *wire.Error
	for {
		m, err := w.stream.Recv()
		if err != nil {
			if muster.KindOf(wire.FromStatus(err)) != muster.KindUnavailable {
				t.Errorf("it ended with %v", err)
			}
			break
		}
		told = m.GetError()
	}
	if told.GetKind() != string(muster.KindUnavailable) {
		t.Errorf("the worker was told %v", told)
	}
}

func TestAStoppingServerSendsItsWorkersElsewhere(t *testing.T) {
	c := startCluster(t, 2)
	w := c.worker(1, "w1", muster.Version{})
	w.welcome()
	w.view()
	c.members[1].rpc.Stop()
	for {
		if _, err := w.stream.Recv(); err != nil {
			if muster.KindOf(wire.FromStatus(err)) != muster.KindUnavailable {
				t.Errorf("it ended with %v", err)
			}
			break
		}
	}
	other := c.worker(0, "w1", muster.Version{})
	other.welcome()
}
