package duty

import (
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/wire"
)

// leaseStory is a state with one node, and the leader's lease table over it.
type leaseStory struct {
	t     *testing.T
	state *state.State
	index muster.Index
	table *Leases
	now   Boot
}

const second = Boot(time.Second)

func newLeaseStory(t *testing.T) *leaseStory {
	s := &leaseStory{t: t, state: state.New(), now: 1000 * second}
	s.apply(&state.InitCluster{ClusterID: "test"})
	s.register("session-1")
	s.table = NewLeases(s.now)
	return s
}

func (s *leaseStory) apply(commands ...state.Command) {
	s.t.Helper()
	s.index++
	results, _ := s.state.Apply(state.Entry{Stamp: 1, Commands: commands}, s.index, 1)
	for _, r := range results {
		if r.Err != nil {
			s.t.Fatal(r.Err)
		}
	}
}

func (s *leaseStory) register(session string) {
	s.apply(&state.RegisterNode{Node: muster.Node{
		Name: "gpu-1", Address: "10.0.0.1:1", IP: "10.0.0.1", Hardware: "hw", Boot: "boot", Instance: "instance", Session: session,
		MilliCores: 64000, Memory: 512 * muster.GiB, PortLow: 20000, PortHigh: 30000, GPUs: []muster.GPU{
			{UUID: "GPU-1", Model: "NVIDIA H100 80GB HBM3", Memory: 80 * muster.GiB, Health: muster.GPUHealthy},
			{UUID: "GPU-2", Model: "NVIDIA H100 80GB HBM3", Memory: 80 * muster.GiB, Health: muster.GPUHealthy},
		},
	}})
}

// place submits a job of one GPU, starts it, and gives its allocation.
func (s *leaseStory) place(job *muster.JobSpec) *muster.Allocation {
	s.t.Helper()
	s.apply(&state.Submit{Header: state.Header{User: "ada"}, Specs: []*muster.JobSpec{job}})
	plan := scheduler.Schedule(scheduler.NewView(s.snapshot()), scheduler.Signals{}, 1)
	s.apply(&state.CommitPlan{Term: 1, Gangs: plan.Gangs})
	var newest *muster.Allocation
	for a := range s.snapshot().AllocsOnNode(1) {
		newest = a
	}
	if newest == nil {
		s.t.Fatal("nothing was placed")
	}
	return newest
}

// minute places a job with a lease of a minute.
func (s *leaseStory) minute() *muster.Allocation { return s.place(smallJob("job")) }

func (s *leaseStory) snapshot() *state.Snapshot { return s.state.Snapshot() }

// renew sends a renewal that names allocs, and gives its answer, nil while it waits.
func (s *leaseStory) renew(session string, allocs ...*muster.Allocation) *Renewal {
	renew := &wire.Renew{}
	for _, a := range allocs {
		renew.Allocs = append(renew.Allocs, wire.AllocIDOf(a.ID))
	}
	return s.table.Arrive(s.now, s.snapshot(), &wire.RenewBatch{Renewals: []*wire.NodeRenew{{Node: 1, Session: session, Renew: renew}}})
}

// renewed renews, in contact, and says whether the leases go on.
func (s *leaseStory) renewed(session string, allocs ...*muster.Allocation) bool {
	s.t.Helper()
	r := s.renew(session, allocs...)
	s.now++
	s.table.Settle(s.now, s.now, s.snapshot())
	return s.answer(r)
}

func (s *leaseStory) answer(r *Renewal) bool {
	s.t.Helper()
	select {
	case ok := <-r.Answer:
		return ok[0]
	default:
		s.t.Fatal("no answer")
		return false
	}
}

// pass lets time pass, with a tick each half second, in contact with a majority; it gives what ran out.
func (s *leaseStory) pass(d Boot) (ends []*state.EndLeases) {
	for end := s.now + d; s.now < end; {
		s.now = min(end, s.now+Boot(LeaseTick))
		ends = append(ends, s.table.Tick(s.now, s.now, s.snapshot())...)
	}
	return ends
}

func TestARenewalIsAnsweredOnceContactIsLaterThanItsArrival(t *testing.T) {
	s := newLeaseStory(t)
	r := s.renew("session-1", s.minute())
	arrived := s.now
	s.table.Settle(arrived+second, arrived, s.snapshot()) // contact from before
	if len(r.Answer) != 0 {
		t.Fatal("answered without contact since it arrived")
	}
	s.table.Settle(arrived+second, arrived+1, s.snapshot())
	if !s.answer(r) {
		t.Fatal("refused")
	}
}

func TestALeaseRunsOutFivePercentAndASecondAfterItsLastAnswer(t *testing.T) {
	s := newLeaseStory(t)
	a := s.minute()
	s.pass(10 * second)
	if !s.renewed("session-1", a) {
		t.Fatal("refused")
	}
	if ends := s.pass(64 * second); len(ends) != 0 { // 60 × 1.05 + 1
		t.Fatalf("ended early: %+v", ends[0])
	}
	ends := s.pass(second)
	if len(ends) == 0 || len(ends[0].Allocs) != 1 || ends[0].Allocs[0] != a.ID || !ends[0].Lost || ends[0].Session != "session-1" {
		t.Fatalf("got %+v, want the end of %v and of its node", ends, a.ID)
	}
}

func TestNothingRunsOutWithoutContactLaterThanTheDeadline(t *testing.T) {
	s := newLeaseStory(t)
	s.minute()
	contact := s.now
	for range 1000 {
		s.now += Boot(LeaseTick)
		if ends := s.table.Tick(s.now, contact, s.snapshot()); len(ends) != 0 {
			t.Fatal("a leader without a majority ended leases")
		}
	}
	if ends := s.table.Tick(s.now+1, s.now, s.snapshot()); len(ends) != 1 {
		t.Fatal("nothing ran out in contact")
	}
}

func TestANewLeaderTakesEveryLeaseForFresh(t *testing.T) {
	s := newLeaseStory(t)
	s.minute()
	s.pass(60 * second)
	s.table = NewLeases(s.now)
	if ends := s.pass(64 * second); len(ends) != 0 {
		t.Fatal("a new leader ended a lease that the old one may have renewed")
	}
	if ends := s.pass(second); len(ends) == 0 {
		t.Fatal("nothing ran out")
	}
}

func TestALateTickMakesEveryLeaseFresh(t *testing.T) {
	s := newLeaseStory(t)
	s.minute()
	s.pass(60 * second)
	s.now += 100 * second // the leader was not running, and nobody could renew
	if ends := s.table.Tick(s.now, s.now, s.snapshot()); len(ends) != 0 {
		t.Fatal("ended at once after a pause")
	}
	if ends := s.pass(64 * second); len(ends) != 0 {
		t.Fatal("not fresh after a pause")
	}
}

func TestRenewalsThatCameBeforeAreAnsweredFirst(t *testing.T) {
	s := newLeaseStory(t)
	a := s.minute()
	s.pass(64 * second)
	r := s.renew("session-1", a)
	if ends := s.pass(second); len(ends) != 0 {
		t.Fatal("ended although a renewal was waiting")
	}
	if !s.answer(r) {
		t.Fatal("refused")
	}
}

func TestWhatIsBeingEndedGetsNoAnswerThatLetsItGoOn(t *testing.T) {
	s := newLeaseStory(t)
	a := s.minute()
	ends := s.pass(66 * second)
	if len(ends) == 0 {
		t.Fatal("nothing ran out")
	}
	if s.renewed("session-1", a) {
		t.Fatal("renewed while its end is being proposed")
	}
	if again := s.pass(second); len(again) == 0 { // an outcome that is not known is proposed again
		t.Fatal("the end was forgotten")
	}
	s.table.Refused(ends[0])
	if !s.renewed("session-1", a) {
		t.Fatal("not renewed after the state had refused its end")
	}
}

func TestOnlyTheNewestSessionOfALiveNodeRenews(t *testing.T) {
	s := newLeaseStory(t)
	a := s.minute()
	s.pass(second)
	s.register("session-2") // the agent started again, and says that it runs nothing
	if s.renewed("session-1", a) {
		t.Error("an old session renewed")
	}
	if !s.renewed("session-2") {
		t.Error("the new session was refused")
	}
	s.apply(&state.EndLeases{Term: 1, Node: 1, Session: "session-2", Lost: true})
	if s.renewed("session-2") {
		t.Error("a lost node renewed without registering")
	}
}

func TestAnAllocationThatWasNeverNamedGoesOnWithItsNode(t *testing.T) {
	s := newLeaseStory(t)
	first, late := s.minute(), s.minute()
	for range 10 {
		s.pass(10 * second)
		s.renewed("session-1", first) // the worker has not heard of the other yet
	}
	for range 6 {
		s.renewed("session-1", first, late)
		s.pass(10 * second)
	}
	var ends []*state.EndLeases
	for range 6 { // its supervisor is silent
		s.renewed("session-1", first)
		ends = append(ends, s.pass(10*second)...)
	}
	if len(ends) == 0 || len(ends[0].Allocs) != 1 || ends[0].Allocs[0] != late.ID || ends[0].Lost {
		t.Fatalf("got %+v, want the end of %v alone", ends, late.ID)
	}
}

func TestANewLeaderEndsWhatRunsAndIsNamedNoMore(t *testing.T) {
	s := newLeaseStory(t)
	first, silent := s.minute(), s.minute()
	s.apply(&state.ReportAllocs{Node: 1, Allocs: []muster.AllocReport{{ID: silent.ID, Phase: muster.AllocRunning}}})
	s.table = NewLeases(s.now) // its supervisor was silent before, and the worker never names it to this leader
	var ends []*state.EndLeases
	for range 8 {
		s.renewed("session-1", first)
		ends = append(ends, s.pass(10*second)...)
	}
	if len(ends) == 0 || len(ends[0].Allocs) != 1 || ends[0].Allocs[0] != silent.ID || ends[0].Lost {
		t.Fatalf("got %+v, want the end of %v alone", ends, silent.ID)
	}
}

func TestSilenceMakesANodeSuspectUntilItIsHeard(t *testing.T) {
	s := newLeaseStory(t)
	suspect := func() bool { s.pass(1); return s.table.Silent()[1] != "" }
	s.pass(10 * second) // since the first tick, that made the node known, nine and a half
	if suspect() {
		t.Error("suspect before two renewals were missed")
	}
	s.pass(second)
	if !suspect() {
		t.Error("not suspect after ten seconds of silence")
	}
	s.renewed("session-1")
	if suspect() {
		t.Error("suspect although it was heard")
	}
	s.table.Broke(s.now, s.snapshot(), 1, "session-1")
	s.pass(second)
	if suspect() {
		t.Error("suspect before it had time to come back")
	}
	s.pass(2 * second)
	if !suspect() {
		t.Error("not suspect although its connection broke")
	}
	s.renewed("session-1")
	if suspect() {
		t.Error("suspect although it came back")
	}
}

func TestAnIdleNodeIsLostAfterAMinute(t *testing.T) {
	s := newLeaseStory(t)
	s.pass(second)
	if ends := s.pass(58 * second); len(ends) != 0 {
		t.Fatal("lost early")
	}
	ends := s.pass(2 * second)
	if len(ends) == 0 || !ends[0].Lost || len(ends[0].Allocs) != 0 {
		t.Fatalf("got %+v, want a lost node", ends)
	}
}

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
