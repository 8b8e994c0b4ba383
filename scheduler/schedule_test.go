package scheduler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

func TestPriorityThenAge(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*1")
	low, first, second := w.submit(gpus(1), priority(10)), w.submit(gpus(1), priority(60)), w.submit(gpus(1), priority(60))
	w.place()
	w.expect(first, "n1:0")
	w.expect(second, "")
	w.expect(low, "")
	w.end(first, muster.ClassExit, 0)
	w.place()
	w.expect(second, "n1:0")
	w.end(second, muster.ClassExit, 0)
	w.place()
	w.expect(low, "n1:0")
}

func TestUsersShareOneLine(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*1")
	zoe := w.submitSpec("zoe", spec(gpus(1)))
	ann := w.submitSpec("ann", spec(gpus(1)))
	w.place()
	w.expect(zoe, "n1:0")
	w.expect(ann, "")
}

func TestSmallerJobsStartBehindABlockedOne(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*8")
	wide, small := w.submit(gpus(8), ranks(2)), w.submit(gpus(2))
	w.place()
	w.expect(wide, "")
	w.expect(small, "n1:0,1")
}

func TestTwoGangsThatFitOnlyOneAfterTheOther(t *testing.T) {
	w := newWorld(t)
	for i := range 100 {
		w.node(fmt.Sprintf("n%d", i), "H100*1")
	}
	a, b := w.submit(gpus(1), ranks(100)), w.submit(gpus(1), ranks(100))
	w.place()
	if got := len(strings.Fields(w.at(a))); got != 100 {
		t.Errorf("the first gang has %d ranks placed, want 100", got)
	}
	w.expect(b, "")
	if got := w.why(b).Headline; got != "needs 100 nodes with 1 free GPU each; now none" {
		t.Error(got)
	}
	w.end(a, muster.ClassExit, 0)
	w.place()
	if got := len(strings.Fields(w.at(b))); got != 100 {
		t.Errorf("the second gang has %d ranks placed, want 100", got)
	}
}

func TestAGangGetsOneModel(t *testing.T) {
	w := newWorld(t)
	w.node("a", "H100*4")
	w.node("b", "A100*4")
	gang := w.submit(gpus(4), ranks(2))
	w.place()
	w.expect(gang, "")
	if got, want := tell(w.why(gang)), `1 of 1, 0 ahead []
needs 2 nodes with 4 free GPUs each; the nodes could never hold it
  model 0   all ranks get one GPU model; room for 1 on NVIDIA A100 80GB, 1 on NVIDIA H100 80GB
`; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	w.node("c", "A100*4")
	w.place()
	w.expect(gang, "b:0,1,2,3 c:0,1,2,3")
}

func TestTheModelThatFitsTighterIsTaken(t *testing.T) {
	w := newWorld(t)
	w.node("a", "H100*8")
	w.node("b", "L40S*2")
	any, named := w.submit(gpus(2)), w.submit(gpus(2, "H100", "A100"))
	w.place()
	w.expect(any, "b:0,1")
	w.expect(named, "a:0,1")
}

func TestMixedMachinesGiveSlotsOfOneModel(t *testing.T) {
	w := newWorld(t)
	w.node("mix", "H100*2 A100*4")
	four, two, more := w.submit(gpus(4)), w.submit(gpus(2)), w.submit(gpus(1))
	w.place()
	w.expect(four, "mix:2,3,4,5")
	w.expect(two, "mix:0,1")
	w.expect(more, "")
}

func TestSmallCardsAreNotTaken(t *testing.T) {
	w := newWorld(t)
	w.node("small", "A100*2", func(n *muster.Node) {
		for i := range n.GPUs {
			n.GPUs[i].Memory = 40 * muster.GiB
		}
	})
	big := func(r *muster.Resources) { r.GPUs, r.MinMemory = 1, 80*muster.GiB }
	job := w.submit(needs(big))
	w.place()
	w.expect(job, "")
	w.node("nominal", "H100*2", func(n *muster.Node) {
		for i := range n.GPUs {
			n.GPUs[i].Memory = 80 * muster.GiB / 1000 * 995 // a card of 80 GiB has a little less
		}
	})
	w.place()
	w.expect(job, "nominal:0")
}

func TestTheTightestNodeIsTaken(t *testing.T) {
	w := newWorld(t)
	w.node("eight", "H100*8")
	w.node("four", "H100*4")
	w.node("two", "H100*2")
	w.node("none", "")
	two, four, one, cpu := w.submit(gpus(2)), w.submit(gpus(4)), w.submit(gpus(1)), w.submit()
	w.place()
	w.expect(two, "two:0,1")
	w.expect(four, "four:0,1,2,3")
	w.expect(one, "eight:0")
	w.expect(cpu, "none:")
	eight := w.submit(gpus(7))
	w.place()
	w.expect(eight, "eight:1,2,3,4,5,6,7")
}

func TestWorkWithoutGPUsGoesWhereGPUsAreUsedUp(t *testing.T) {
	w := newWorld(t)
	w.node("free", "H100*4")
	w.node("used", "H100*2")
	gpu := w.submit(gpus(2), cores(2), memory(muster.GiB))
	w.place()
	w.expect(gpu, "used:0,1")
	cpu := w.submit(cores(4))
	w.place()
	w.expect(cpu, "used:")
}

func TestAGangTakesTheFewestNodes(t *testing.T) {
	w := newWorld(t)
	w.node("a", "H100*2")
	w.node("b", "H100*4")
	w.node("c", "H100*4")
	w.node("d", "H100*1")
	gang := w.submit(gpus(1), ranks(5))
	w.place()
	w.expect(gang, "b:0 b:1 b:2 b:3 d:0")
}

func TestCoresAndMemoryAreCounted(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*8")
	hungry := w.submit(gpus(1), cores(60))
	w.place()
	w.expect(hungry, "n1:0")
	job, fat := w.submit(cores(8)), w.submit(cores(1), memory(500*muster.GiB))
	w.place()
	w.expect(job, "")
	w.expect(fat, "")
	if got, want := tell(w.why(job)), `1 of 2, 0 ahead []
needs 1 node with 8 cores and 4GiB free; now none
  cores 1 n1  4 cores free, needs 8
`; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if got, want := tell(w.why(fat)), fmt.Sprintf(`2 of 2, 1 ahead [%d]
needs 1 node with 1 core and 500GiB free; now none
  memory 1 n1  451.2GiB free, needs 500GiB
`, job); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestExclusiveNeedsAnEmptyNodeAndKeepsItToItself(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*2")
	w.node("n2", "H100*2")
	small := w.submit(gpus(1))
	w.place()
	w.expect(small, "n1:0")
	alone, second := w.submit(gpus(1), exclusive), w.submit(gpus(1), exclusive)
	other := w.submit(cores(1))
	w.place()
	if !strings.HasPrefix(w.at(alone), "n2:0") {
		t.Errorf("the exclusive job is at %q, want n2", w.at(alone))
	}
	w.expect(second, "")
	w.expect(other, "n1:")
	e := w.why(second)
	if e.Headline != "needs 1 node with 1 free GPU and nothing else on it; now none" || len(e.Reasons) != 2 ||
		e.Reasons[0].Kind != "in use" {
		t.Error(tell(e))
	}
}

func TestConstraints(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*2", label("zone", "us-1"))
	w.node("n2", "H100*2", label("zone", "eu-1"))
	w.node("n3", "H100*2")
	eu := w.submit(gpus(1), where("label.zone", muster.OpEqual, "eu-1"))
	name := w.submit(gpus(1), where("node.name", muster.OpIn, "n3,n4"))
	nowhere := w.submit(gpus(1), where("label.zone", muster.OpEqual, "ap-1"))
	w.place()
	w.expect(eu, "n2:0")
	w.expect(name, "n3:0")
	if got, want := tell(w.why(nowhere)), `1 of 1, 0 ahead []
needs 1 node with 1 free GPU; no node could ever run it
  constraint never 1 n1  us-1, not label.zone = ap-1
  constraint never 1 n2  eu-1, not label.zone = ap-1
  constraint never 1 n3  without it: label.zone = ap-1
`; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestWithinNode(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*4")
	w.node("n2", "H100*4")
	w.node("n3", "H100*6")
	gang, wide := w.submit(gpus(1), ranks(5), within("node")), w.submit(gpus(1), ranks(7), within("node"))
	w.place()
	w.expect(gang, "n3:0 n3:1 n3:2 n3:3 n3:4")
	w.expect(wide, "")
	if got, want := tell(w.why(wide)), `1 of 1, 0 ahead []
needs 1 node with 7 free GPUs for 7 ranks; the nodes could never hold it
  too few gpus never 2 n1 n2  4 of 7
  too few gpus never 1 n3  6 of 7
`; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestWithinALabelTakesTheSmallestDomainThatHoldsTheGang(t *testing.T) {
	w := newWorld(t)
	w.node("a1", "H100*8", label("rack", "a"))
	w.node("a2", "H100*8", label("rack", "a"))
	w.node("a3", "H100*8", label("rack", "a"))
	w.node("b1", "H100*8", label("rack", "b"))
	w.node("none", "H100*8")
	w.node("c1", "H100*8", label("rack", "c"))
	w.node("c2", "H100*8", label("rack", "c"))
	gang := w.submit(gpus(8), ranks(2), within("rack"))
	w.place()
	w.expect(gang, "c1:0,1,2,3,4,5,6,7 c2:0,1,2,3,4,5,6,7")
	next, wide := w.submit(gpus(8), ranks(2), within("rack")), w.submit(gpus(8), ranks(3), within("rack"))
	w.place()
	w.expect(next, "a1:0,1,2,3,4,5,6,7 a2:0,1,2,3,4,5,6,7")
	w.expect(wide, "")
	want := "needs room for 3 ranks with 8 free GPUs each in one rack; now room for 1 rank"
	if got := w.why(wide).Headline; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRanksOfTwoGroupsGoLargestFirst(t *testing.T) {
	w := newWorld(t)
	w.node("A", "H100*53")
	w.node("B", "H100*31")
	job := w.submit(func(s *muster.JobSpec) {
		s.Groups = []muster.Group{group("small", 1), group("large", 1)}
		s.Groups[0].Task.Resources.GPUs, s.Groups[1].Task.Resources.GPUs = 30, 50
	})
	w.place()
	if at := w.at(job); !strings.HasPrefix(at, "B:") || !strings.Contains(at, " A:") {
		t.Errorf("the ranks are at %q, want B then A", at)
	}
}

func TestSmallRanksDoNotTakeTheOnlyRoomOfALargeOne(t *testing.T) {
	w := newWorld(t)
	w.node("A", "H100*8")
	w.node("B", "H100*4")
	w.node("C", "H100*2")
	job := w.submit(func(s *muster.JobSpec) {
		s.Groups = []muster.Group{group("small", 3), group("large", 1)}
		s.Groups[0].Task.Resources.GPUs, s.Groups[1].Task.Resources.GPUs = 2, 8
	})
	w.place()
	w.expect(job, "B:0,1 B:2,3 C:0,1 A:0,1,2,3,4,5,6,7")
}

func TestNothingNewOnNodesThatDrainAreSuspectOrLost(t *testing.T) {
	w := newWorld(t)
	w.node("drained", "H100*1")
	suspect := w.node("suspect", "H100*1")
	w.node("lost", "H100*1")
	w.apply(&state.DrainNodes{Header: state.Header{User: "ann"}, Nodes: []string{"drained"}, Reason: "fan"})
	w.apply(&state.FenceNode{Header: state.Header{User: "ann"}, Node: "lost"})
	signals := Signals{Suspect: map[muster.NodeID]string{suspect: "silent for 3s"}}
	job := w.submit(gpus(1, "H100"))
	w.placeWith(signals)
	w.expect(job, "")
	lost, _ := w.snap.NodeNamed("lost")
	if got, want := tell(w.whyWith(job, signals)), `1 of 1, 0 ahead []
needs 1 node with 1 free H100; now none
  lost 1 lost  `+lost.Reason+`
  suspect 1 suspect  silent for 3s
  draining 1 drained  by ann, "fan"
`; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	w.apply(&state.UndrainNodes{Nodes: []string{"drained"}})
	w.placeWith(signals)
	w.expect(job, "drained:0")
}

func TestTiesGoToTheLeastLoadedThenTheFirst(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("a", "H100*2"), w.node("b", "H100*2")
	w.node("c", "H100*2")
	job := w.submit(gpus(2))
	w.placeWith(Signals{Load: map[muster.NodeID]int64{a: 900, b: 100, 3: 100}})
	w.expect(job, "b:0,1")
}

func TestMachinesOfManyAmountsOfMemory(t *testing.T) {
	w := newWorld(t)
	loads := map[muster.NodeID]int64{}
	for i := range 2 * fewClasses {
		id := w.node(fmt.Sprintf("n%d", i), "H100*2", func(n *muster.Node) { n.Memory += muster.Bytes(i) * muster.MiB })
		loads[id] = int64(100 + i)
	}
	first, fat := w.submit(gpus(1)), w.submit(gpus(1), memory(512*muster.GiB+10*muster.MiB))
	w.place()
	w.expect(first, "n0:0")
	w.expect(fat, "n10:0")
	calm := w.submit(gpus(2))
	loads[41] = 1
	w.placeWith(Signals{Load: loads})
	w.expect(calm, "n40:0,1")
}

func TestARestoredClusterPlacesNothingUntilItsWorkersReport(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*1")
	job := w.submit(gpus(1))
	restored, err := state.Restore(w.index, func(yield func(state.Row, error) bool) {
		for row := range w.snap.Rows() {
			if c, ok := row.(*state.Cluster); ok {
				next := *c
				next.Epoch++
				row = &next
			}
			if !yield(row, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w.state, w.snap = restored, restored.Snapshot()
	w.view.Advance(w.snap, state.Changed{})
	w.place()
	w.expect(job, "")
	if got, want := tell(w.why(job)), `1 of 1, 0 ahead []
needs 1 node with 1 free GPU; now none
  absent 1 n1  has not reported since the cluster was restored
`; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	w.node("n1", "H100*1")
	w.place()
	w.expect(job, "n1:0")
}

func TestANewAttemptGoesElsewhereWhenTheNodeIsToBlame(t *testing.T) {
	w := newWorld(t)
	w.node("bad", "H100*1")
	job := w.submit(gpus(1))
	w.place()
	w.end(job, muster.ClassPrepare, 0)
	w.place()
	w.expect(job, "bad:0") // nowhere else to go: better there than never
	w.end(job, muster.ClassPrepare, 0)
	w.node("good", "H100*1")
	w.place()
	w.expect(job, "good:0")
}

func TestAPlanIsBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.node(fmt.Sprintf("n%d", i), "", func(n *muster.Node) { n.MilliCores, n.Memory = 3_000_000, 40*muster.TiB })
	}
	wide, next := w.submit(ranks(MaxPlanRanks)), w.submit()
	plan := Schedule(w.view, Signals{}, 0)
	if len(plan.Gangs) != 1 || plan.Gangs[0].Job != wide || !plan.More {
		t.Fatalf("%d gangs, more %v; want the first gang alone, and more", len(plan.Gangs), plan.More)
	}
	w.commit(plan)
	plan = Schedule(w.view, Signals{}, 0)
	if len(plan.Gangs) != 1 || plan.Gangs[0].Job != next || plan.More {
		t.Fatalf("%d gangs, more %v; want the second, and no more", len(plan.Gangs), plan.More)
	}
}

func TestWhyInNumbers(t *testing.T) {
	w := newWorld(t)
	for i := 1; i <= 3; i++ {
		w.node(fmt.Sprintf("gpu-%d", i), "H100*8")
	}
	w.node("old", "A100*8")
	w.node("cpu", "")
	long := spec(gpus(8, "H100"), named("long"))
	limited := spec(gpus(8, "H100"), named("limited"))
	limited.TimeLimit = 4 * 3600e9
	w.submitSpec("bob", long)
	w.submitSpec("bob", limited)
	w.submitSpec("bob", spec(gpus(2, "H100"), named("two")))
	w.place()
	first := w.submit(gpus(8, "H100"), priority(80), named("first"))
	job := w.submit(gpus(8, "H100"), ranks(2))
	w.place()
	if got, want := tell(w.why(job)), fmt.Sprintf(`2 of 2, 1 ahead [%d]
needs 2 nodes with 8 free H100 each; now none
  busy 2 gpu-1 gpu-2  limited (2 of bob), at most 4h more; long (1 of bob)
  short 1 gpu-3  6 of 8 free
  wrong gpu never 1 old  NVIDIA A100 80GB
  wrong gpu never 1 cpu  no GPUs
`, first); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestWhyOfWhatDoesNotPend(t *testing.T) {
	w := newWorld(t)
	job := w.submit()
	if got := w.why(job).Headline; got != "needs 1 node with 1 core and 4GiB free; there are no nodes yet" {
		t.Error(got)
	}
	w.node("n1", "")
	if got := w.why(job).Note; got != "there is room: it starts with the next pass" {
		t.Error(got)
	}
	w.place()
	if e := w.why(job); e.Position != 0 || e.Note != "preparing" && e.Note != "running" {
		t.Error(tell(e))
	}
	w.apply(&state.Cancel{Jobs: []muster.JobID{job}, Mode: muster.StopKill})
	w.end(job, muster.ClassCancelled, 0)
	if e := w.why(job); !strings.HasPrefix(e.Note, "cancelled") {
		t.Error(tell(e))
	}
	if _, ok := w.view.Explain(99, Signals{}, 0); ok {
		t.Error("a job that does not exist is explained")
	}
}
