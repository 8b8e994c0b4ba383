package cluster

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

func TestThreeServersMakeOneClusterAndAgree(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.everywhere(c.submit("first"))
	leaders, voters := 0, 0
	for _, info := range c.leader().Servers() {
		if info.Leader {
			leaders++
		}
		if info.Voter {
			voters++
		}
	}
	if leaders != 1 || voters != 3 {
		t.Errorf("%d leaders and %d voters, want 1 and 3", leaders, voters)
	}
	for _, s := range c.servers {
		if name := s.hub.newest().snapshot.Cluster().ID; name != "test" {
			t.Errorf("%s knows the cluster as %q", s.config.Name, name)
		}
		if at, _ := s.Leader(); at != c.leader().config.RPCAddress {
			t.Errorf("%s takes %q for the leader", s.config.Name, at)
		}
	}
}

func TestAFollowerRefusesAndDoesNothing(t *testing.T) {
	c := startCluster(t, 3, nil)
	f := c.followers()[0]
	_, err := f.Propose(c.context(), submission("lost"))
	if muster.KindOf(err) != muster.KindUnavailable || !strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("proposing at a follower: %v", err)
	}
	if _, err := f.ReadIndex(c.context()); muster.KindOf(err) != muster.KindUnavailable {
		t.Errorf("reading at a follower: %v", err)
	}
	if _, err := f.Renew(c.context(), &wire.RenewBatch{}); muster.KindOf(err) != muster.KindUnavailable {
		t.Errorf("renewing at a follower: %v", err)
	}
}

func TestAcknowledgedJobsSurviveTheLeader(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.submit("before")
	old := c.leader()
	changed := c.followers()[0].LeaderChanged()
	c.shutdown(old)
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatal("nobody was told that the leader changed")
	}
	c.submit("between")
	c.start(old)
	c.everywhere(c.submit("after"))
	if n := old.hub.newest().snapshot.JobCount(); n != 3 {
		t.Errorf("the restarted server knows %d jobs, want 3", n)
	}
}

func TestAllServersRestartAndKnowEverything(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.everywhere(c.submit("job"))
	for _, s := range c.servers {
		c.shutdown(s)
	}
	for _, s := range c.servers {
		c.start(s)
	}
	c.everywhere(c.submit("again"))
	if n := c.leader().hub.newest().snapshot.JobCount(); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
}

func TestAFourthServerJoinsWithoutAVote(t *testing.T) {
	c := startCluster(t, 3, nil)
	index := c.submit("job")
	fourth := c.add(3)
	c.eventually("the fourth to be a member", func() bool { return len(fourth.raftServers()) == 4 })
	if err := fourth.WaitApplied(c.context(), index); err != nil {
		t.Fatal(err)
	}
	for _, s := range fourth.raftServers() {
		if string(s.ID) == fourth.ID() && s.Suffrage != raft.Nonvoter {
			t.Errorf("the fourth of three voters is a %v", s.Suffrage)
		}
	}
}

func TestANewServerIsPromotedWhenItHasCaughtUp(t *testing.T) {
	c := startCluster(t, 1, func(_ int, c *Config) { c.Voters = 3 })
	c.submit("job")
	for range 2 {
		s := c.add(1)
		c.eventually("its vote", func() bool { return s.Status().Voter })
	}
	c.shutdown(c.leader())
	c.submit("without the first")
}

func TestAServerMayComeBackWithAnotherAddress(t *testing.T) {
	c := startCluster(t, 3, nil)
	f := c.followers()[0]
	c.shutdown(f)
	for _, s := range c.servers {
		if s != f {
			f.config.Join = append(f.config.Join, s.GossipAddress())
		}
	}
	f.config.RPCAddress = "127.0.0.1:0"
	c.start(f)
	index := c.submit("job")
	if err := f.WaitApplied(c.context(), index); err != nil {
		t.Fatal(err)
	}
}

func TestADataDirectoryBelongsToOneClusterAndOneProcess(t *testing.T) {
	c := startCluster(t, 1, nil)
	s := c.servers[0]
	try := func(cluster string) error {
		config := s.config
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		config.RaftListener, config.ClusterID = listener, cluster
		other, err := Start(config)
		if err == nil {
			other.Shutdown()
		}
		return err
	}
	if err := try("test"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second process got in: %v", err)
	}
	c.shutdown(s)
	if err := try("other"); err == nil || !strings.Contains(err.Error(), `belongs to cluster "test"`) {
		t.Errorf("another cluster got in: %v", err)
	}
}

func TestReadsAreLinearizableWhileLeadersChange(t *testing.T) {
	c := startCluster(t, 3, nil)
	ctx, cancel := context.WithCancel(c.context())
	var wait sync.WaitGroup
	var mu sync.Mutex
	var acknowledged, seen muster.Index // the highest index acknowledged, and read linearizably
	reads := 0
	for range 4 {
		wait.Go(func() { // a client that writes
			for ctx.Err() == nil {
				for _, s := range c.servers {
					if reply, err := s.Propose(ctx, submission("write")); err == nil {
						mu.Lock()
						acknowledged = max(acknowledged, muster.Index(reply.Index))
						mu.Unlock()
					}
				}
			}
		})
		wait.Go(func() { // a client that reads, at any server, through whoever says it leads
			for i := 0; ctx.Err() == nil; i++ {
				mu.Lock()
				least := max(acknowledged, seen)
				mu.Unlock()
				for _, leader := range c.servers {
					index, err := leader.ReadIndex(ctx)
					if err != nil {
						continue
					}
					at := c.servers[i%len(c.servers)]
					if at.WaitApplied(ctx, index) != nil {
						continue
					}
					got := at.hub.newest().index
					mu.Lock()
					if got < least {
						t.Errorf("read %d after %d had been acknowledged or read", got, least)
					}
					seen = max(seen, got)
					reads++
					mu.Unlock()
				}
			}
		})
	}
	for range 3 {
		leader := c.leader()
		mu.Lock()
		target := acknowledged + 20
		mu.Unlock()
		c.eventually("writes", func() bool { mu.Lock(); defer mu.Unlock(); return acknowledged >= target })
		leader.network.cut.Store(true) // it may take itself for the leader for a while
		c.eventually("another leader", func() bool { return leader.leadership.Load() == nil && c.leader() != leader })
		leader.network.cut.Store(false)
	}
	cancel()
	wait.Wait()
	if reads == 0 {
		t.Error("nothing was ever read")
	}
}

func TestADeposedLeadersDutyIsRefused(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := c.leader().leadership.Load()
	stale := &leadership{server: l.server, term: l.term - 1}
	out := stale.propose(c.context(), &state.Wake{Term: stale.term, Jobs: []muster.JobID{1}})[0]
	if out.err != nil || out.result.Err == nil {
		t.Errorf("a duty of term %d in term %d: %+v, want a refusal", stale.term, l.term, out)
	}
}

func TestDutiesEndWithTheirTerm(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.leader()
	l := leader.leadership.Load()
	leader.network.cut.Store(true)
	select {
	case <-l.ctx.Done():
	case <-time.After(patience):
		t.Fatal("the term of a leader that is cut off does not end")
	}
	l.wait.Wait()
	if cause := context.Cause(l.ctx); !errors.Is(cause, errLeadershipOver) {
		t.Errorf("the term ended because: %v", cause)
	}
	if err := l.inContact(c.context(), leader.config.Clock.withDefaults().Boot()); err == nil {
		t.Error("a deposed leader is in contact")
	}
	leader.network.cut.Store(false)
}

func TestRequestsThatOnlyTheLeaderMayDecideAreRefused(t *testing.T) {
	c := startCluster(t, 1, nil)
	_, err := c.leader().Propose(c.context(), wire.CommandOf(&state.Purge{Term: c.leader().leadership.Load().term}))
	if muster.KindOf(err) != muster.KindDenied {
		t.Errorf("a client's purge: %v", err)
	}
	if _, err = c.leader().Propose(c.context(), &wire.Command{}); muster.KindOf(err) != muster.KindInvalid {
		t.Errorf("an empty command: %v", err)
	}
	huge := submission("huge")
	huge.GetSubmit().Specs[0].Groups[0].Task.Script = strings.Repeat("x", maxCommand)
	if _, err = c.leader().Propose(c.context(), huge); muster.KindOf(err) != muster.KindInvalid {
		t.Errorf("a command of more than 4 MiB: %v", err)
	}
}

func TestLeadershipLostAndRegainedAtOnceRestartsTheDuties(t *testing.T) {
	c := startCluster(t, 1, nil)
	s := c.leader()
	first := s.leadership.Load()
	s.notify <- false
	s.notify <- true
	c.eventually("the duties to begin again", func() bool { l := s.leadership.Load(); return l != nil && l != first })
	if first.ctx.Err() == nil {
		t.Error("the first leadership goes on")
	}
	c.submit("job")
}

func TestARestartBeginsFromTheSnapshot(t *testing.T) {
	c := startCluster(t, 1, nil)
	s := c.servers[0]
	for range 5 {
		c.submit("job")
	}
	if err := s.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	c.submit("after the snapshot")
	digest := s.hub.newest().snapshot.Digest()
	at := s.hub.newest().index
	c.shutdown(s)
	c.start(s)
	if err := s.WaitApplied(c.context(), at); err != nil {
		t.Fatal(err)
	}
	if now := s.hub.newest(); now.index == at && now.snapshot.Digest() != digest {
		t.Error("the restarted server differs")
	}
	if n := s.hub.newest().snapshot.JobCount(); n != 6 {
		t.Errorf("%d jobs, want 6", n)
	}
}

// With pipelining a follower that missed appends for a while was equal again only after half a minute.
func TestAFollowerThatMissedWritesIsSoonEqualAgain(t *testing.T) {
	c := startCluster(t, 3, func(_ int, c *Config) { c.Timing = WAN }) // one follower is all that holds the leader
	f := c.followers()[0]
	leader := c.leader()
	leader.network.deafen(raft.ServerID(f.ID()))
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				if _, err := leader.Propose(c.context(), submission("write")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	leader.network.deafen("")
	index := c.submit("last")
	ctx, cancel := context.WithTimeout(c.context(), 7*time.Second)
	defer cancel()
	if err := f.WaitApplied(ctx, index); err != nil {
		t.Errorf("seven seconds later: %v", err)
	}
}
