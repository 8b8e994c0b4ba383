package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/wire"
)

// The disk of the leader hangs. Within five seconds writes go on elsewhere; its own process ends, comes back, and has all that
// was ever acknowledged, before, meanwhile and since.
func TestALeaderWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	disks := map[int]*hangingLogs{}
	c := startCluster(t, 3, func(i int, c *Config) {
		disks[i] = &hangingLogs{}
		c.Timing = LAN // as servers have it: the five seconds are theirs
		c.WrapLogs = func(s raft.LogStore) raft.LogStore { disks[i].LogStore = s; return disks[i] }
	})
	c.submit("before")
	old := c.leader()
	for i, s := range c.servers {
		if s == old {
			disks[i].hangUntil(hang)
		}
	}
	began := time.Now()
	stuck := make(chan error, 1)
	go func() { _, err := old.Propose(c.context(), submission("stuck")); stuck <- err }()
	select {
	case err := <-old.fatal:
		t.Logf("ended after %v: %v", time.Since(began), err)
	case <-time.After(patience):
		t.Fatal("the disk hangs and the leader lives")
	}
	c.submit("meanwhile")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("writes went on after %v, want within 5 s", took)
	}
	close(hang)
	c.shutdown(old)
	if err := <-stuck; err == nil {
		t.Error("what the hanging disk never had was acknowledged")
	}
	c.start(old)
	c.everywhere(c.submit("since"))
	jobs := map[string]bool{}
	for job := range old.hub.newest().snapshot.Jobs(0) {
		jobs[job.Name] = true
	}
	for _, name := range []string{"before", "meanwhile", "since"} {
		if !jobs[name] {
			t.Errorf("the server that came back lacks %q, which was acknowledged: it has %v", name, jobs)
		}
	}
}

// A follower is cut off, and stands for election again and again in vain. When it is back the leader still leads, in the same term.
func TestARejoiningIsolatedServerDeposesNobody(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, func(_ int, c *Config) { c.Timing = WAN }) // so that busy cores depose nobody either
	c.everywhere(c.submit("before"))
	isolated, leader := c.followers()[0], c.leader()
	term := leader.raft.CurrentTerm()
	isolated.network.cut.Store(true)
	leader.network.deafen(raft.ServerID(isolated.ID()))
	c.eventually("it to ask both others for votes, twice", func() bool { return isolated.network.campaigns.Load() >= 4 })
	during := c.submit("meanwhile")
	isolated.network.cut.Store(false) // it may speak first
	asked := isolated.network.campaigns.Load()
	c.eventually("it to ask both others once more", func() bool { return isolated.network.campaigns.Load() >= asked+2 })
	leader.network.deafen("")
	if err := isolated.WaitApplied(c.context(), during); err != nil {
		t.Fatal(err)
	}
	c.everywhere(c.submit("after"))
	for _, s := range c.servers {
		if at, _ := s.Leader(); s.raft.CurrentTerm() != term || at != leader.config.RPCAddress {
			t.Errorf("%s is in term %d under %q, want term %d under %q still", s.config.Name, s.raft.CurrentTerm(), at, term, leader.config.RPCAddress)
		}
	}
}

// A leader slept for longer than any lease, and its followers' answers to what it sent before come only now. It takes them for
// old: until a majority has answered what it sent since it woke it renews no lease, answers no read, and declares nobody lost.
func TestALeaderThatWakesLateProvesItselfFirst(t *testing.T) {
	t.Parallel()
	slow := Timing{4 * time.Second, 4 * time.Second, 4 * time.Second} // so that answers that are held back depose nobody
	var slept atomic.Int64
	c := startCluster(t, 3, func(_ int, c *Config) {
		c.Timing = slow
		c.Clock.Boot = func() Boot { return bootTime() + Boot(slept.Load()) }
	})
	c.register()
	c.submit("job")
	leader := c.leader()
	var held muster.AllocID
	c.eventually("its placement", func() bool {
		for a := range leader.hub.newest().snapshot.AllocsOnNode(1) {
			held = a.ID
		}
		return held != muster.AllocID{}
	})
	renewals := &wire.RenewBatch{Renewals: []*wire.NodeRenew{
		{Node: 1, Session: "session-1", Renew: &wire.Renew{Allocs: []*wire.AllocID{wire.AllocIDOf(held)}}},
	}}
	if reply, err := leader.Renew(c.context(), renewals); err != nil || !reply.Ok[0] {
		t.Fatalf("before it slept: %v, %v", reply, err)
	}

	leader.network.hold()
	c.eventually("answers of both followers at the gate", func() bool { return leader.network.holds(2) })
	late := leader.network.turn()
	slept.Store(int64(100 * time.Second))
	renewed, read := make(chan error, 1), make(chan error, 1)
	go func() {
		reply, err := leader.Renew(c.context(), renewals)
		if err == nil && !reply.Ok[0] {
			err = errors.New("refused")
		}
		renewed <- err
	}()
	go func() { _, err := leader.ReadIndex(c.context()); read <- err }()
	since := leader.config.Clock.Boot()
	late()
	c.eventually("answers to what it sent since at the gate", func() bool { return leader.network.holds(2) })
	if value, _ := leader.contact.value(leader.leadership.Load().term); value == 0 || value > since-99*Boot(time.Second) {
		t.Errorf("contact is %d, and it woke at %d: answers to what was sent before must count as old, the others not yet", value, since)
	}
	select { // for long enough that leases would be looked at twice
	case err := <-renewed:
		t.Errorf("a renewal was answered (%v) with nothing but answers from before", err)
	case err := <-read:
		t.Errorf("a read was answered (%v) with nothing but answers from before", err)
	case <-time.After(1300 * time.Millisecond):
	}
	leader.network.open()
	if t.Failed() {
		return
	}
	if err := errors.Join(<-renewed, <-read); err != nil {
		t.Fatalf("once a majority had answered: %v", err)
	}
	c.everywhere(c.submit("after")) // what it had proposed before is decided now
	if c.leader() != leader {
		t.Fatal("it was deposed, which is another story")
	}
	snapshot := leader.hub.newest().snapshot
	node, _ := snapshot.Node(1)
	if a, ok := snapshot.Alloc(held); node.State() != muster.NodeReady || !ok || a.Phase == muster.AllocEnded {
		t.Errorf("the node is %v, the allocation is there: %v: it was declared lost", node.State(), ok)
	}
}

// Leadership is lost, and regained within a second, while a pass of the old scheduler is in the middle of something. The new one
// begins when the old one has ended, and what the old one had decided is refused.
func TestLeadershipLostAndRegainedNeverRunsTwoSchedulers(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, nil)
	c.submit("job")
	leader := c.leader()
	first := leader.leadership.Load()
	middle, decided := make(chan struct{}), make(chan outcome, 1)
	finish := sync.OnceFunc(func() { close(middle) })
	defer finish() // else the server could not be stopped
	first.wait.Go(func() {
		<-middle
		decided <- first.propose(context.Background(), &state.CommitPlan{Term: first.term})[0]
	})
	hand := func(from, to *testServer) {
		t.Helper()
		c.eventually(from.config.Name+" to hand over to "+to.config.Name, func() bool {
			if from.raft.State() == raft.Leader { // one that lags is tried again
				_ = from.raft.LeadershipTransferToServer(raft.ServerID(to.ID()), raft.ServerAddress(to.config.RPCAddress)).Error()
			}
			return to.raft.State() == raft.Leader
		})
	}
	other := c.followers()[0]
	hand(leader, other)
	c.eventually("the other one to be ready", func() bool { l := other.leadership.Load(); return l != nil && closed(l.ready) })
	hand(other, leader)
	if first.ctx.Err() == nil {
		t.Error("the first scheduler was not told to end")
	}
	select { // not for a second time while the first goes on
	case <-time.After(500 * time.Millisecond):
	case <-decided:
	}
	if l := leader.leadership.Load(); l != nil {
		t.Errorf("duties of term %d began while those of term %d went on", l.term, first.term)
	}
	finish()
	if out := <-decided; out.err == nil && out.result.Err == nil {
		t.Error("a plan of a term that was over was taken")
	}
	c.eventually("the duties to begin again", func() bool { l := leader.leadership.Load(); return l != nil && l.term > first.term && closed(l.ready) })
	c.submit("another job")
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A leader is cut off, and decides: a job is placed, a node is lost. The others elect another. Neither decision is ever seen, not
// when the old leader is back among them, and not when it leads again and says the same once more.
func TestADeposedLeadersPlanAndNodeLostNeverCommit(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, nil)
	c.register()
	c.everywhere(c.submit("job"))
	old := c.leader()
	first := old.leadership.Load()
	c.eventually("its placement", func() bool { return allocations(old) == 1 })
	plan := &state.CommitPlan{Term: first.term, Gangs: planOfTheFirstJob(t, old)}
	lost := &state.EndLeases{Term: first.term, Node: 1, Session: "session-1", Lost: true, Reason: "silent"}

	old.network.cut.Store(true)
	last := old.raft.LastIndex()
	decided := make(chan []outcome, 1)
	go func() { decided <- first.propose(c.context(), plan, lost) }()
	c.eventually("its decisions in its own log", func() bool { return old.raft.LastIndex() > last })
	c.eventually("another leader", func() bool { return old.leadership.Load() == nil && c.leader() != old })
	c.submit("meanwhile")
	old.network.cut.Store(false)
	for _, out := range <-decided {
		if out.err == nil {
			t.Errorf("it was told that its decision was taken: %+v", out.result)
		}
	}
	c.everywhere(c.submit("after"))

	c.eventually("the old one to lead again", func() bool {
		now := c.leader()
		if now != old {
			_ = now.raft.LeadershipTransferToServer(raft.ServerID(old.ID()), raft.ServerAddress(old.config.RPCAddress)).Error() // it is tried again
		}
		return now == old
	})
	again := old.leadership.Load()
	for _, out := range again.propose(c.context(), plan, lost) {
		if out.err != nil || out.result.Err == nil {
			t.Errorf("what was decided in term %d, said in term %d: %+v, want a refusal", first.term, again.term, out)
		}
	}
	c.everywhere(c.submit("at last"))
	for _, s := range c.servers {
		if node, _ := s.hub.newest().snapshot.Node(1); node.State() != muster.NodeReady || allocations(s) != 1 {
			t.Errorf("at %s the node is %v and has %d allocations, want ready and the one that was placed", s.config.Name, node.State(), allocations(s))
		}
	}
}

func allocations(s *testServer) (n int) {
	for range s.hub.newest().snapshot.AllocsOnNode(1) {
		n++
	}
	return n
}

// planOfTheFirstJob places the first job of a cluster on its node, as a leader decides who has not placed it yet.
func planOfTheFirstJob(t *testing.T, at *testServer) []state.GangPlacement {
	t.Helper()
	s := state.New()
	node, _ := at.hub.newest().snapshot.Node(1)
	commands := []state.Command{
		&state.InitCluster{ClusterID: "test"}, &state.RegisterNode{Node: *node},
		&state.Submit{Header: state.Header{User: "ada"}, Specs: []*muster.JobSpec{smallJob("job")}},
	}
	if results, _ := s.Apply(state.Entry{Stamp: 1, Commands: commands}, 1, 1); results[2].Err != nil {
		t.Fatal(results[2].Err)
	}
	plan := scheduler.Schedule(scheduler.NewView(s.Snapshot()), scheduler.Signals{}, 1)
	if len(plan.Gangs) != 1 {
		t.Fatalf("%d gangs are placed, want one", len(plan.Gangs))
	}
	return plan.Gangs
}
