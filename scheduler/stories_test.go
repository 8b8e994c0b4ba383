package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"pgregory.net/rapid"
)

// day is a world whose clock goes on: what is placed runs at once, who is preempted is gone at once, and jobs end when told to.
type day struct {
	*world
	stopped map[muster.JobID]int // how often each was preempted
}

func newDay(t tester, edit func(*muster.Policy), queues ...muster.QueueSpec) *day {
	d := &day{newWorld(t), map[muster.JobID]int{}}
	d.clock = 2_000_000
	p := muster.DefaultPolicy()
	if edit != nil {
		edit(&p)
	}
	d.apply(&state.ApplyQueues{Queues: queues, Policy: p})
	return d
}

func queueWith(name string, quota int) muster.QueueSpec {
	return queueOf(name, func(q *muster.QueueSpec) {
		if quota > 0 {
			q.Quota = []muster.Quota{{GPUs: quota}}
		}
	})
}

func limit(d time.Duration) func(*muster.JobSpec) {
	return func(s *muster.JobSpec) { s.TimeLimit = d }
}

func saving(s *muster.JobSpec) { s.Groups[0].Checkpoint.Signal = "SIGUSR1" }

// settle makes passes until nothing more is decided.
func (d *day) settle() {
	d.t.Helper()
	for range 200 {
		plan := Schedule(d.view, Signals{}, d.clock)
		if plan.Empty() {
			return
		}
		for _, refusal := range d.apply(plan.Command(term))[0].Refused {
			d.t.Fatalf("the state refused job %d: %s", refusal.Job, refusal.Reason)
		}
		for _, g := range plan.Gangs {
			d.runs(g.Job)
		}
		for _, e := range plan.Evictions {
			for _, v := range e.Victims {
				d.stopped[v.Job]++
				d.end(v.Job, muster.ClassPreempted, 0)
			}
		}
		if err := d.snap.CheckInvariants(); err != nil {
			d.t.Fatalf("%v", err)
		}
	}
	d.t.Fatalf("no rest after 200 passes; stopped: %v", d.stopped)
}

// runs reports that all ranks of a job run.
func (d *day) runs(id muster.JobID) {
	job, _ := d.snap.Job(id)
	for a := range d.snap.AllocsOfAttempt(id, job.Attempt) {
		d.apply(&state.ReportAllocs{Node: a.Node, Allocs: []muster.AllocReport{{ID: a.ID, Phase: muster.AllocRunning}}})
	}
}

func (d *day) wait(t time.Duration) { d.clock = d.clock.Add(t) }

func (d *day) held(queue string) int {
	n := 0
	for _, r := range d.view.running {
		if r.job.Queue == queue {
			n += int(r.gpus / 1000)
		}
	}
	return n
}

func TestAWideJobStartsWithinTheLongestOfAStreamOfSmallOnes(t *testing.T) {
	d := newDay(t, nil)
	d.node("n1", "H100*8")
	var small []muster.JobID
	for range 8 {
		small = append(small, d.submit(gpus(1), limit(time.Minute)))
	}
	d.settle()
	wide := d.submit(gpus(8), limit(time.Hour))
	for i := range 8 { // every few seconds one ends and another comes
		d.wait(7 * time.Second)
		d.end(small[i], muster.ClassNone, 0)
		d.submit(gpus(1), limit(time.Minute))
		d.settle()
	}
	if d.at(wide) == "" {
		t.Error("the wide job waits after the longest of those that ran before it")
	}
}

func TestAShortJobBackfillsAndALongOneDoesNot(t *testing.T) {
	d := newDay(t, nil)
	d.node("n1", "H100*8")
	d.submit(gpus(4), limit(time.Hour))
	d.settle()
	wide := d.submit(gpus(8), limit(time.Hour))
	long, short := d.submit(gpus(4), limit(2*time.Hour)), d.submit(gpus(4), limit(30*time.Minute))
	d.settle()
	d.expect(wide, "")
	d.expect(long, "")
	d.expect(short, "n1:4,5,6,7")
}

func TestWhatCannotRunKeepsNoPlace(t *testing.T) {
	d := newDay(t, nil)
	d.node("n1", "H100*8")
	d.node("n2", "A100*8")
	d.apply(&state.DrainNodes{Nodes: []string{"n2"}, Reason: "fan"})
	for range 1000 {
		d.submit(gpus(8, "A100"))
	}
	a, b := d.submit(gpus(4), limit(time.Hour)), d.submit(gpus(4), limit(time.Hour))
	d.settle()
	if d.at(a) == "" || d.at(b) == "" {
		t.Error("two jobs that can run wait behind those that cannot")
	}
}

func TestPriorityStopsTheCheapestInItsQueueAndEqualPriorityNobody(t *testing.T) {
	d := newDay(t, nil)
	d.node("n1", "H100*2")
	old := d.submit(gpus(1), priority(10))
	d.settle()
	d.wait(time.Hour)
	young := d.submit(gpus(1), priority(10))
	d.settle()
	d.wait(time.Minute)
	equal := d.submit(gpus(1), priority(10))
	d.settle()
	d.expect(equal, "")
	high := d.submit(gpus(1), priority(60))
	d.settle()
	if d.at(high) == "" || d.at(old) == "" || d.at(young) != "" || d.stopped[young] != 1 {
		t.Errorf("high at %q, old at %q, young at %q", d.at(high), d.at(old), d.at(young))
	}
	job, _ := d.snap.Job(young)
	if why := job.Attempts[0].Reason; !strings.Contains(why, "of priority 60") {
		t.Errorf("why it was stopped: %q", why)
	}
	d.end(high, muster.ClassNone, 0)
	d.settle()
	if d.at(young) == "" || d.at(equal) != "" {
		t.Error("the preempted job has lost its old place")
	}
}

func TestAGangIsPreemptedWholeOrNotAtAll(t *testing.T) {
	d := newDay(t, nil)
	for i := range 3 {
		d.node(fmt.Sprintf("n%d", i), "H100*1", label("rack", fmt.Sprintf("r%d", i)))
	}
	gang := d.submit(gpus(1), ranks(3), priority(10))
	d.settle()
	high := d.submit(gpus(1), priority(90), where("label.rack", muster.OpEqual, "r1"))
	d.settle()
	d.expect(gang, "")
	d.expect(high, "n1:0")
	if d.stopped[gang] != 1 {
		t.Errorf("stopped %d times", d.stopped[gang])
	}
}

func TestVictimsAreChosenSoThatOneNodeIsFreeOrNoneAre(t *testing.T) {
	d := newDay(t, nil)
	d.node("n1", "H100*2")
	d.node("n2", "H100*2")
	half := needs(func(r *muster.Resources) { r.GPUs, r.Share = 1, 500 })
	whole := []muster.JobID{d.submit(gpus(1), priority(10)), d.submit(gpus(1), priority(10))}
	d.settle()
	var halves []muster.JobID
	for range 2 {
		halves = append(halves, d.submit(half, priority(10)))
	}
	d.settle()
	high := d.submit(gpus(2), priority(90))
	d.settle()
	nodes := map[string]bool{}
	left := 0
	for _, id := range append(whole, halves...) {
		if at := d.at(id); at != "" {
			node, _, _ := strings.Cut(at, ":")
			nodes[node], left = true, left+1
		}
	}
	at, _, _ := strings.Cut(d.at(high), ":")
	if at == "" || nodes[at] || left == 0 {
		t.Errorf("the high one is at %q, and %d others run on %v", d.at(high), left, nodes)
	}
}

func TestAQueueGetsItsQuotaAndNobodyFallsBelowTheirs(t *testing.T) {
	d := newDay(t, nil, queueWith("a", 100), queueWith("b", 200))
	for i := range 30 {
		d.node(fmt.Sprintf("n%d", i), "H100*10")
	}
	for range 300 {
		d.submit(gpus(1), inQueue("b"))
	}
	d.settle()
	if d.held("b") != 300 {
		t.Fatalf("b holds %d", d.held("b"))
	}
	for range 120 {
		d.submit(gpus(1), inQueue("a"))
	}
	d.settle()
	if d.held("a") != 100 || d.held("b") != 200 {
		t.Errorf("a holds %d of its 100, b %d of its 200", d.held("a"), d.held("b"))
	}
	before := len(d.stopped)
	d.wait(time.Hour)
	d.settle()
	if len(d.stopped) != before {
		t.Error("somebody is stopped again, though all have what they may")
	}
}

func TestAnEntitledJobSettlesInTwoPasses(t *testing.T) {
	d := newDay(t, nil, queueWith("a", 15), queueWith("b", 15), queueWith("free", 0))
	for i := range 3 {
		d.node(fmt.Sprintf("n%d", i), "H100*10")
	}
	d.submit(gpus(10), inQueue("a"))
	d.submit(gpus(10), inQueue("a")) // borrows
	d.settle()
	d.submit(gpus(5), inQueue("free"))
	d.settle()
	entitled := d.submit(gpus(10), inQueue("b"))
	d.settle()
	if d.at(entitled) == "" {
		t.Fatal("the entitled job waits")
	}
	for range 3 {
		d.wait(time.Hour)
		d.settle()
	}
	for id, n := range d.stopped {
		if n > 1 {
			t.Errorf("job %d was stopped %d times", id, n)
		}
	}
}

func TestUsersOfAQueueTakeTurnsByWhatTheyHaveUsed(t *testing.T) {
	d := newDay(t, nil)
	d.node("n1", "H100*8")
	for range 20 {
		d.submitSpec("ann", spec(gpus(1)))
	}
	for range 20 {
		d.submitSpec("bob", spec(gpus(1)))
	}
	d.settle()
	count := map[string]int{}
	for _, r := range d.view.running {
		count[r.job.User]++
	}
	if count["ann"] != 4 || count["bob"] != 4 {
		t.Errorf("%v run", count)
	}
}

func TestTheShortestGoesFirstAndAWideGangDoesNotStarve(t *testing.T) {
	d := newDay(t, func(p *muster.Policy) {
		p.Order, p.Preemption, p.WideAfter = muster.OrderShortest, muster.PreemptShortest, 10*time.Hour
	})
	d.node("n1", "H100*8")
	d.node("n2", "H100*8")
	long := d.submit(gpus(8), limit(100*time.Hour), saving)
	d.submit(gpus(8), limit(2*time.Hour), saving)
	d.settle()
	short := d.submit(gpus(8), limit(time.Hour), saving)
	d.settle()
	d.expect(long, "")
	if d.at(short) == "" || d.stopped[long] != 1 {
		t.Errorf("the short job is at %q", d.at(short))
	}
	wide := d.submit(gpus(8), ranks(2), limit(200*time.Hour), saving)
	d.settle()
	d.expect(wide, "")
	d.wait(10*time.Hour + time.Minute)
	d.submit(gpus(8), limit(time.Minute), saving)
	d.settle()
	if d.at(wide) == "" {
		t.Error("the wide gang has waited its time and does not go first")
	}
	d.submit(gpus(8), limit(time.Minute), saving)
	d.settle()
	if d.at(wide) == "" || d.stopped[wide] > 0 {
		t.Error("the wide gang is made to wait again")
	}
}

func TestAGangThatLostANodeComesBeforeFreshWork(t *testing.T) {
	d := newDay(t, nil)
	d.node("n1", "H100*1")
	broken := d.submitSpec("zoe", spec(gpus(1)))
	d.settle()
	fresh := d.submitSpec("ann", spec(gpus(1)))
	d.wait(time.Hour)
	d.end(broken, muster.ClassNode, 0)
	d.settle()
	d.expect(fresh, "")
	d.expect(broken, "n1:0")
}

func TestLoweringAQuotaStopsNothing(t *testing.T) {
	d := newDay(t, nil, queueWith("a", 8))
	d.node("n1", "H100*8")
	for range 8 {
		d.submit(gpus(1), inQueue("a"))
	}
	d.settle()
	d.apply(&state.ApplyQueues{Queues: []muster.QueueSpec{queueWith("a", 2)}, Policy: muster.DefaultPolicy()})
	d.view = NewView(d.snap) // as a new leader has it
	d.settle()
	if d.held("a") != 8 || len(d.stopped) > 0 {
		t.Errorf("a holds %d, stopped %v", d.held("a"), d.stopped)
	}
}

// What is planned for the first in line is never put off by what starts behind it: with limits that hold, it starts at the planned
// time at the latest, whatever comes after it.
func TestNoBackfillDelaysAPlannedStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDay(t, func(p *muster.Policy) {
			p.Order, p.Preemption, p.WideAfter = muster.OrderFIFO, muster.PreemptOff, 0
			p.Reservations = rapid.IntRange(1, 4).Draw(t, "reservations")
			p.FairShare = false
		})
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		for i := range nodes {
			d.node(fmt.Sprintf("n%d", i), "H100*4")
		}
		ends := map[muster.JobID]muster.Time{}
		lasts := map[muster.JobID]time.Duration{}
		submit := func() muster.JobID {
			run := time.Duration(rapid.IntRange(1, 20).Draw(t, "minutes")) * time.Minute
			id := d.submit(gpus(rapid.IntRange(1, 4).Draw(t, "gpus")), ranks(rapid.IntRange(1, nodes).Draw(t, "ranks")), limit(run))
			lasts[id] = run
			return id
		}
		planned := muster.Time(0)
		var first muster.JobID
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			submit()
			d.settle()
			for id, run := range lasts {
				if d.at(id) != "" && ends[id] == 0 {
					ends[id] = d.clock.Add(run)
				}
			}
			a := d.view.open(Signals{}, d.clock)
			a.decide()
			if len(a.reservations) > 0 {
				head := slices.MinFunc(a.reservations, func(x, y reservation) int { return int(x.job) - int(y.job) })
				if head.job == first && head.start > planned {
					t.Fatalf("job %d was planned for %d and now is for %d", first, planned, head.start)
				}
				first, planned = head.job, head.start
			} else {
				first = 0
			}
			a.rollback(0)
			d.wait(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			for _, id := range ended(ends, d.clock) {
				delete(ends, id)
				delete(lasts, id)
				d.end(id, muster.ClassNone, 0)
			}
		}
	})
}

func ended(ends map[muster.JobID]muster.Time, now muster.Time) []muster.JobID {
	var ids []muster.JobID
	for id, at := range ends {
		if at <= now {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Random queues, quotas, priorities and orders come to rest by themselves, over and over, and nothing is held at the end.
func TestPassesComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		orders := []muster.Order{muster.OrderFair, muster.OrderFIFO, muster.OrderShortest}
		d := newDay(t, func(p *muster.Policy) {
			p.Order = rapid.SampledFrom(orders).Draw(t, "order")
			p.FairShare = rapid.Bool().Draw(t, "fair")
			p.WideGPUs, p.WideAfter = 4, time.Duration(rapid.IntRange(0, 3).Draw(t, "after"))*time.Hour
			p.Preemption = rapid.SampledFrom([]muster.Preemption{muster.PreemptFair, muster.PreemptShortest}).Draw(t, "preemption")
		}, queueWith("a", rapid.IntRange(0, 8).Draw(t, "a")), queueWith("b", rapid.IntRange(0, 8).Draw(t, "b")))
		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			d.node(fmt.Sprintf("n%d", i), "H100*4")
		}
		var jobs []muster.JobID
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			for range rapid.IntRange(0, 3).Draw(t, "come") {
				s := spec(gpus(rapid.IntRange(0, 4).Draw(t, "gpus")), ranks(rapid.IntRange(1, 2).Draw(t, "ranks")),
					priority(rapid.IntRange(0, 2).Draw(t, "priority")), inQueue(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")),
					limit(time.Duration(rapid.IntRange(0, 5).Draw(t, "hours"))*time.Hour))
				if rapid.Bool().Draw(t, "saves") {
					saving(s)
				}
				jobs = append(jobs, d.submitSpec(rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"), s))
			}
			before := Schedule(d.view, Signals{}, d.clock)
			if again := Schedule(NewView(d.snap), Signals{}, d.clock); fmt.Sprint(before) != fmt.Sprint(again) {
				t.Fatalf("a fresh view decides otherwise:\n%v\n%v", before, again)
			}
			d.settle()
			d.wait(time.Duration(rapid.IntRange(0, 120).Draw(t, "minutes")) * time.Minute)
			for _, id := range jobs {
				if d.at(id) != "" && rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
					d.end(id, muster.ClassNone, 0)
				}
			}
		}
		d.apply(&state.Cancel{Jobs: jobs, Mode: muster.StopKill})
		for _, id := range jobs {
			d.end(id, muster.ClassCancelled, 0)
		}
		for n := range d.snap.Nodes() {
			if n.FreeSlots != n.UsableSlots() || n.Allocs != 0 || n.FreeMilliCores != n.MilliCores {
				t.Fatalf("%s is not free at rest: %+v", n.Name, n)
			}
		}
		for u := range d.snap.Usage() {
			if u.MilliGPUs != 0 || u.MilliCores != 0 || u.Memory != 0 {
				t.Fatalf("%+v at rest", u)
			}
		}
		for range d.snap.Holds() {
			t.Fatal("something is held at rest")
		}
	})
}
