package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func TestAPlanIsTakenWholeOrRefusedWhole(t *testing.T) {
	w := newStory(t)
	plain := machine("gpu-01", 8)
	plain.Labels = []muster.Label{{Key: "rack", Value: "r1"}}
	other := machine("gpu-02", 8)
	other.Labels = []muster.Label{{Key: "rack", Value: "r2"}}
	for i := range other.GPUs {
		other.GPUs[i].Model = "NVIDIA A100-SXM4-80GB"
	}
	sick := machine("gpu-03", 8)
	sick.GPUs[0].Health = muster.GPUQuarantined
	w.register(plain, other, sick, machine("cpu-01", 0))

	busy := w.submit(gang("busy", 1, 2))
	w.run(busy, "gpu-01")
	id := w.submit(gang("two", 2, 2))
	onRack := gang("rack", 2, 2)
	onRack.Groups[0].Within = "rack"
	rack := w.submit(onRack)
	onZone := gang("zone", 1, 1)
	onZone.Groups[0].Constraints = []muster.Constraint{{Attribute: "label.rack", Operator: "=", Value: "r2"}}
	zone := w.submit(onZone)
	whole := gang("whole", 1, 8)
	whole.Groups[0].Task.Resources.Exclusive = true
	exclusive := w.submit(whole)
	wide := w.submit(gang("wide", 1, 8))
	big := gang("big", 1, 0)
	big.Groups[0].Task.Resources.MilliCores = 60_000
	cores := w.submit(big)
	old := gang("a100", 1, 1)
	old.Groups[0].Task.Resources.Models = []string{"A100"}
	a100 := w.submit(old)

	change := func(g GangPlacement, f func(g *GangPlacement)) GangPlacement {
		f(&g)
		return g
	}
	good := w.plan(id, "gpu-01", "gpu-01")
	for _, tc := range []struct {
		name string
		gang GangPlacement
		want string
	}{
		{"unknown job", change(good, func(g *GangPlacement) { g.Job = 404 }), "not known"},
		{"running job", change(good, func(g *GangPlacement) { g.Job = busy }), "the job is running"},
		{"attempt", change(good, func(g *GangPlacement) { g.Attempt = 2 }), "attempt 2 was planned, but 1 is next"},
		{"a rank too few", change(good, func(g *GangPlacement) { g.Ranks = g.Ranks[:1] }), "1 of 2 ranks"},
		{"a rank twice", change(good, func(g *GangPlacement) { g.Ranks = []RankPlacement{g.Ranks[0], g.Ranks[0]} }), "rank 0 of group 0 stands where rank 1"},
		{"slots twice", change(good, func(g *GangPlacement) {
			g.Ranks = slices.Clone(g.Ranks)
			g.Ranks[1].Slots = g.Ranks[0].Slots
		}), "GPU slots 2,3 are not free"},
		{"taken slots", change(good, func(g *GangPlacement) {
			g.Ranks = slices.Clone(g.Ranks)
			g.Ranks[1].Slots = muster.SlotRange(2)
		}), "GPU slots 0,1 are not free"},
		{"slots that do not exist", change(good, func(g *GangPlacement) {
			g.Ranks = slices.Clone(g.Ranks)
			g.Ranks[1].Slots = 3 << 8
		}), "GPU slots 8,9 are not free"},
		{"too many slots", change(good, func(g *GangPlacement) {
			g.Ranks = slices.Clone(g.Ranks)
			g.Ranks[1].Slots = 0b1110000
		}), "3 GPUs for a rank that needs 2"},
		{"other cores", change(good, func(g *GangPlacement) {
			g.Ranks = slices.Clone(g.Ranks)
			g.Ranks[1].MilliCores--
		}), "whose part there is"},
		{"unknown node", change(good, func(g *GangPlacement) {
			g.Ranks = slices.Clone(g.Ranks)
			g.Ranks[1].Node = 404
		}), "node number 404 is not known"},
		{"two models", w.plan(id, "gpu-01", "gpu-02"), "two GPU models in a gang"},
		{"two racks", w.plan(rack, "gpu-01", "gpu-02"), "not within one rack"},
		{"no rack", w.plan(rack, "gpu-03", "gpu-03"), "not within one rack"},
		{"constraint", w.plan(zone, "gpu-01"), "gpu-01 does not meet the constraints"},
		{"not wholly free", w.plan(exclusive, "gpu-01"), "gpu-01 is not wholly free"},
		{"sick GPU", change(w.plan(wide, "gpu-03"), func(g *GangPlacement) { g.Ranks[0].Slots = muster.SlotRange(8) }), "gpu-03: GPU slots 0 are not free"},
		{"model", w.plan(a100, "gpu-01"), "is not what the job asks for"},
		{"cores", w.plan(cores, "gpu-01"), "gpu-01 has 48 cores left, a rank needs 60"},
	} {
		before := w.s.w.digest
		if reason := w.commit(tc.gang); !strings.Contains(reason, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, reason, tc.want)
		}
		if w.s.w.digest != before {
			t.Fatalf("%s: refused, and changed something", tc.name)
		}
	}

	// One bad gang does not hinder the others of a plan.
	r := w.do(&CommitPlan{Term: term, Gangs: []GangPlacement{w.plan(rack, "gpu-01", "gpu-02"), good, w.plan(zone, "gpu-02"), good}})
	if len(r.Refused) != 2 || r.Refused[0].Job != rack || r.Refused[1].Job != id {
		t.Errorf("%+v", r.Refused)
	}
	w.expect(id, muster.JobPreparing)
	w.expect(zone, muster.JobPreparing)
	// The second of two gangs for the same slots sees the first.
	if reason := w.commit(change(w.plan(a100, "gpu-02"), func(g *GangPlacement) { g.Ranks[0].Slots = 1 })); !strings.Contains(reason, "GPU slots 0 are not free") {
		t.Errorf("%q", reason)
	}
}

func TestAnExclusiveRankHasItsNodeAlone(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	whole := gang("whole", 1, 2)
	whole.Groups[0].Task.Resources.Exclusive = true
	w.run(w.submit(whole), "gpu-01")
	if reason := w.commit(w.plan(w.submit(gang("x", 1, 1)), "gpu-01")); !strings.Contains(reason, "0 cores left") {
		t.Errorf("%q", reason)
	}
}

func TestAnExclusiveRankHasAlsoWhatItsNodeGains(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	whole := gang("whole", 1, 2)
	whole.Groups[0].Task.Resources.Exclusive = true
	a := w.run(w.submit(whole), "gpu-01")[0]
	grown := machine("gpu-01", 8)
	grown.MilliCores *= 2
	grown.Memory *= 2
	w.do(&RegisterNode{Node: grown, Allocs: []muster.AllocReport{{ID: a.ID, Phase: muster.AllocRunning}}})
	if reason := w.commit(w.plan(w.submit(gang("x", 1, 1)), "gpu-01")); !strings.Contains(reason, "0 cores left") {
		t.Errorf("%q", reason)
	}
	w.exit(w.alloc(a), 0)
	if n := w.node("gpu-01"); n.FreeMilliCores != grown.MilliCores || n.FreeMemory != grown.Memory {
		t.Errorf("%+v", n)
	}
}

func TestNothingNewStartsOnNodesThatMayNot(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	id := w.submit(gang("x", 1, 1))
	w.do(&DrainNodes{Header: Header{User: "root"}, Nodes: []string{"gpu-01"}, Reason: "new fans"})
	if n := w.node("gpu-01"); n.State() != muster.NodeDrained || n.Drain.By != "root" || n.Drain.Deadline != 0 {
		t.Errorf("%s %+v", n.State(), n.Drain)
	}
	if reason := w.commit(w.plan(id, "gpu-01")); reason != "gpu-01 is draining" {
		t.Errorf("%q", reason)
	}
	w.do(&UndrainNodes{Nodes: []string{"gpu-01"}})
	if r := w.do(&UndrainNodes{Nodes: []string{"gpu-01"}}); r.Notes[0] != "gpu-01 was not draining" {
		t.Errorf("%q", r.Notes)
	}
	w.do(&FenceNode{Header: Header{User: "root"}, Node: "gpu-01"})
	if reason := w.commit(w.plan(id, "gpu-01")); reason != "gpu-01 is lost" {
		t.Errorf("%q", reason)
	}
	w.register(machine("gpu-01", 8))
	w.run(id, "gpu-01")

	err := w.refuse(&DrainNodes{Nodes: []string{"gpu-01", "gpu-99"}}, muster.KindNotFound)
	if err.Message != `no node "gpu-99"` || err.Hint != "There are gpu-01, gpu-02" {
		t.Errorf("%v", err)
	}
	w.refuse(&UndrainNodes{Nodes: []string{"gpu-99"}}, muster.KindNotFound)
	w.refuse(&FenceNode{Node: "gpu-99"}, muster.KindNotFound)
}

func TestADrainStopsWholeGangsAndCountsForNothing(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	id := w.submit(gang("train", 2, 8))
	allocs := w.run(id, "gpu-01", "gpu-02")
	w.do(&DrainNodes{Nodes: []string{"gpu-01"}, HasDeadline: true, Deadline: time.Hour})
	w.expect(id, muster.JobRunning)
	w.refuse(&DrainDue{Term: term, Node: 2}, muster.KindConflict)
	w.do(&DrainDue{Term: term, Node: 1})
	w.expect(id, muster.JobStopping)
	for _, a := range allocs {
		if stop := w.alloc(a).Stop; stop.Mode != muster.StopSave || stop.Class != muster.ClassDrain {
			t.Errorf("%+v", stop)
		}
	}
	w.exit(allocs[0], 0)
	w.exit(allocs[1], 1)
	j := w.expect(id, muster.JobPending)
	if at := j.Attempts[0]; at.Class != muster.ClassDrain || j.Failures != 0 || j.ClusterFailures != 0 || j.Stop.Mode != muster.StopNone || j.Backoff != 0 {
		t.Errorf("%+v", j)
	}

	// At once; and a cancel stays a cancel.
	w.do(&UndrainNodes{Nodes: []string{"gpu-01"}})
	allocs = w.run(id, "gpu-01", "gpu-02")
	w.do(&Cancel{Jobs: []muster.JobID{id}, Mode: muster.StopSave})
	w.do(&DrainNodes{Nodes: []string{"gpu-02"}, HasDeadline: true})
	if stop := w.alloc(allocs[0]).Stop; stop.Class != muster.ClassCancelled {
		t.Errorf("%+v", stop)
	}
	w.exit(allocs[0], 0)
	w.exit(allocs[1], 0)
	w.expect(id, muster.JobCancelled)
}

func TestAnExpiredLeaseMovesTheJob(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	spec := gang("train", 2, 8)
	spec.Groups[0].Disconnect.StopAfter = 5 * time.Minute
	id := w.submit(spec)
	allocs := w.run(id, "gpu-01", "gpu-02")
	if allocs[0].Lease != 5*time.Minute {
		t.Errorf("lease %s", allocs[0].Lease)
	}
	end := &EndLeases{Term: term, Node: allocs[0].Node, Session: "session-0", Allocs: []muster.AllocID{allocs[0].ID}, Lost: true,
		Reason: "no contact for 5m"}
	w.refuse(end, muster.KindConflict)
	end.Session = "session-1"
	w.do(end)
	if n := w.node("gpu-01"); !n.Lost || n.Reason != "no contact for 5m" || n.FreeSlots.Count() != 8 {
		t.Errorf("%+v", n)
	}
	j := w.expect(id, muster.JobStopping)
	if at := j.Attempts[0]; at.Class != muster.ClassNode || at.Reason != "rank 0 on gpu-01 was lost: no contact for 5m" {
		t.Errorf("%+v", at)
	}
	w.exit(allocs[1], 143)
	w.expect(id, muster.JobPending)
	rows := w.s.w.digest
	w.exit(allocs[0], 0)
	if w.s.w.digest != rows {
		t.Errorf("a late report changed something")
	}

	// The machine comes back with the process that it should have killed.
	r := w.do(&RegisterNode{Node: machine("gpu-01", 8), Allocs: []muster.AllocReport{{ID: allocs[0].ID, Phase: muster.AllocRunning}}})
	if !slices.Equal(r.Kill, []muster.AllocID{allocs[0].ID}) || w.node("gpu-01").Lost {
		t.Errorf("kill %v", r.Kill)
	}
}

func TestFencingEndsWhatRunsThere(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id := w.submit(gang("train", 1, 8))
	a := w.run(id, "gpu-01")[0]
	w.do(&FenceNode{Header: Header{User: "root"}, Node: "gpu-01"})
	w.expect(id, muster.JobPending)
	if got := w.alloc(a); got.Class != muster.ClassNode || got.Message != "fenced by root" {
		t.Errorf("%+v", got)
	}
	if n := w.node("gpu-01"); n.State() != muster.NodeLost || n.Reason != "fenced by root" {
		t.Errorf("%+v", n)
	}
}

func TestARestartedWorkerIsReconciledLineByLine(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	kept, lost, ended, elsewhere := w.submit(gang("kept", 1, 1)), w.submit(gang("lost", 1, 1)), w.submit(gang("ended", 1, 1)), w.submit(gang("there", 1, 1))
	a, b, c := w.run(kept, "gpu-01")[0], w.run(lost, "gpu-01")[0], w.run(ended, "gpu-01")[0]
	d := w.run(elsewhere, "gpu-02")[0]
	seen := w.snapshot().Version()
	late := w.submit(gang("late", 1, 1))
	e := w.place(late, "gpu-01")[0]
	stranger := muster.AllocID{Epoch: 1, Counter: 99}

	m := machine("gpu-01", 8)
	m.Session = "session-2"
	r := w.do(&RegisterNode{Node: m, Seen: seen, Allocs: []muster.AllocReport{
		{ID: a.ID, Phase: muster.AllocRunning},
		{ID: c.ID, Phase: muster.AllocEnded, Class: muster.ClassExit, ExitCode: 4},
		{ID: d.ID, Phase: muster.AllocRunning},
		{ID: stranger, Phase: muster.AllocRunning},
	}})
	if want := []muster.AllocID{c.ID, d.ID, stranger}; r.Node != 1 || !slices.Equal(r.Kill, want) {
		t.Errorf("kill %v, want %v", r.Kill, want)
	}
	w.expect(kept, muster.JobRunning)
	w.expect(elsewhere, muster.JobRunning)
	if j := w.expect(ended, muster.JobFailed); j.ExitCode != 4 {
		t.Errorf("%+v", j)
	}
	w.expect(lost, muster.JobPending)
	if got := w.alloc(b); got.Class != muster.ClassNode || got.Message != "the worker on gpu-01 lost it" {
		t.Errorf("%+v", got)
	}
	if w.expect(late, muster.JobPreparing); w.alloc(e).Phase != muster.AllocPlaced {
		t.Errorf("what the worker had not heard of yet has ended")
	}
	if w.node("gpu-01").Session != "session-2" {
		t.Errorf("%+v", w.node("gpu-01"))
	}
}

// A hello may lie in a network's queue until after the machine has started again and registered anew.
func TestAHelloThatAnotherHasOvertakenEndsNothing(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	hello := RegisterNode{Node: machine("gpu-01", 8), Replaces: "session-1"}
	hello.Node.Session = "session-2"
	again := hello
	again.Node.Boot, again.Node.Session = "boot-2", "session-3"
	w.do(&again)
	id := w.submit(gang("train", 1, 8))
	w.run(id, "gpu-01")
	w.refuse(&hello, muster.KindUnavailable)
	w.expect(id, muster.JobRunning)
	w.do(&RegisterNode{Node: again.Node, Replaces: "session-1", Seen: again.Seen}) // the same one, said twice

	first := RegisterNode{Node: machine("gpu-02", 8), Replaces: NoSession}
	w.do(&first)
	w.do(&first)
	first.Node.Session = "session-0"
	w.refuse(&first, muster.KindUnavailable)
}

// A server that slept reads the hello of the boot before when it wakes, and knows the session that came after it by then.
func TestAHelloThatWasSaidBeforeTheNodesSessionEndsNothing(t *testing.T) {
	w := newStory(t)
	m := machine("gpu-01", 8)
	m.Session, m.Number = "session-1", 1
	w.register(m)
	old, again := m, m
	old.Session, old.Number = "session-2", 2
	again.Boot, again.Session, again.Number = "boot-2", "session-3", 3
	w.do(&RegisterNode{Node: again, Replaces: "session-1"})
	id := w.submit(gang("train", 1, 8))
	rank := w.run(id, "gpu-01")[0]
	w.refuse(&RegisterNode{Node: old, Replaces: "session-3"}, muster.KindUnavailable)
	w.expect(id, muster.JobRunning)
	again.Session, again.Number = "session-4", 4
	w.do(&RegisterNode{Node: again, Replaces: "session-3", Seen: w.snapshot().Version(),
		Allocs: []muster.AllocReport{{ID: rank.ID, Phase: muster.AllocRunning}}})
	w.expect(id, muster.JobRunning)
}

func TestANewBootProvesThatNothingRuns(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id, done := w.submit(gang("train", 1, 4)), w.submit(gang("done", 1, 4))
	a, b := w.run(id, "gpu-01")[0], w.run(done, "gpu-01")[0]
	m := machine("gpu-01", 8)
	m.Boot, m.Session = "boot-2", "session-2"
	r := w.do(&RegisterNode{Node: m, Seen: w.snapshot().Version(), Allocs: []muster.AllocReport{
		{ID: a.ID, Phase: muster.AllocRunning},
		{ID: b.ID, Phase: muster.AllocEnded}, // written down before the machine went
	}})
	w.expect(id, muster.JobPending)
	w.expect(done, muster.JobSucceeded)
	if got := w.alloc(a); got.Message != "gpu-01 rebooted" || got.Class != muster.ClassNode {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(r.Kill, []muster.AllocID{a.ID, b.ID}) {
		t.Errorf("kill %v", r.Kill)
	}
}

func TestANameBelongsToOneMachineWhileItHoldsSomething(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id := w.submit(gang("train", 1, 1))
	a := w.run(id, "gpu-01")[0]

	thief := machine("gpu-01", 0)
	thief.Hardware, thief.Boot = "hw-other", "boot-9"
	err := w.refuse(&RegisterNode{Node: thief}, muster.KindConflict)
	if !strings.Contains(err.Message, "gpu-01 is another machine, which holds 1 allocation") {
		t.Errorf("%v", err)
	}
	wiped := machine("gpu-01", 8)
	wiped.Instance = "data-2"
	w.refuse(&RegisterNode{Node: wiped}, muster.KindConflict)
	w.expect(id, muster.JobRunning)

	w.exit(a, 0)
	w.do(&RegisterNode{Node: wiped})
	w.do(&RegisterNode{Node: thief})
	n := w.node("gpu-01")
	if n.ID != 1 || n.Hardware != "hw-other" || n.FreeSlots != 0 || len(n.GPUs) != 8 || n.GPUs[0].Health != muster.GPULost {
		t.Errorf("%+v", n)
	}
}

func TestSlotsAreBoundToGPUsForEver(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 4))
	m := machine("gpu-01", 4)
	m.GPUs = m.GPUs[1:]                         // 0 fell off the bus
	m.GPUs[0].UUID = "GPU-spare"                // 1 was replaced
	m.GPUs[1], m.GPUs[2] = m.GPUs[2], m.GPUs[1] // enumerated in another order
	w.do(&RegisterNode{Node: m})
	n := w.node("gpu-01")
	var got []string
	for _, g := range n.GPUs {
		got = append(got, fmt.Sprintf("%s %s", g.UUID, g.Health))
	}
	want := []string{"GPU-gpu-01-0 lost", "GPU-gpu-01-1 lost", "GPU-gpu-01-2 healthy", "GPU-gpu-01-3 healthy", "GPU-spare healthy"}
	if !slices.Equal(got, want) || n.FreeSlots != 0b11100 {
		t.Errorf("%v, free %s", got, n.FreeSlots)
	}
	if n, slot, ok := w.snapshot().NodeOfGPU("GPU-spare"); !ok || n.Name != "gpu-01" || slot != 4 {
		t.Errorf("%v %d %v", n, slot, ok)
	}

	crowded := machine("gpu-01", 0)
	for i := range 60 {
		crowded.GPUs = append(crowded.GPUs, muster.GPU{UUID: fmt.Sprint("GPU-new-", i)})
	}
	w.refuse(&RegisterNode{Node: crowded}, muster.KindInvalid)
}

func TestAGPUBelongsToOneLiveNode(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 2))
	m := machine("gpu-02", 2)
	m.GPUs[1].UUID = "GPU-gpu-01-0"
	err := w.refuse(&RegisterNode{Node: m}, muster.KindConflict)
	if err.Message != "GPU GPU-gpu-01-0 of gpu-02 belongs to gpu-01" {
		t.Errorf("%v", err)
	}
	w.do(&FenceNode{Node: "gpu-01"})
	w.do(&RegisterNode{Node: m})
	if n, slot, _ := w.snapshot().NodeOfGPU("GPU-gpu-01-0"); n.Name != "gpu-02" || slot != 1 {
		t.Errorf("%s %d", n.Name, slot)
	}
	w.refuse(&RegisterNode{Node: machine("gpu-01", 2)}, muster.KindConflict)
}

func TestRegistrationsThatSayNonsenseAreRefused(t *testing.T) {
	for name, f := range map[string]func(*muster.Node){
		"no name":   func(n *muster.Node) { n.Name = "" },
		"no memory": func(n *muster.Node) { n.Memory = -1 },
		"no ports":  func(n *muster.Node) { n.PortHigh = 1 },
		"no UUID":   func(n *muster.Node) { n.GPUs[0].UUID = "" },
		"a twin":    func(n *muster.Node) { n.GPUs[0].UUID = n.GPUs[1].UUID },
	} {
		w := newStory(t)
		m := machine("gpu-01", 2)
		f(&m)
		if err := w.refuse(&RegisterNode{Node: m}, muster.KindInvalid); err.Message == "" {
			t.Error(name)
		}
	}
	w := newStory(t)
	w.refuse(&ReportAllocs{Node: 404}, muster.KindNotFound)
	w.refuse(&EndLeases{Term: term, Node: 404}, muster.KindNotFound)
	w.refuse(&DrainDue{Term: term, Node: 404}, muster.KindNotFound)
}

func TestPortsOfANodeRotate(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8)) // ports 20000 to 20003
	var allocs []*muster.Allocation
	next := func() uint16 {
		a := w.run(w.submit(gang("x", 1, 1)), "gpu-01")[0]
		allocs = append(allocs, a)
		return a.Port
	}
	for i := range 4 {
		if port := next(); port != uint16(20000+i) {
			t.Fatalf("port %d", port)
		}
	}
	if port := next(); port != 0 {
		t.Errorf("a port in use was given again: %d", port)
	}
	w.exit(allocs[2], 0)
	if port := next(); port != 20002 {
		t.Errorf("port %d", port)
	}
	w.exit(allocs[0], 0)
	w.exit(allocs[3], 0)
	if port := next(); port != 20003 {
		t.Errorf("port %d: the next one comes after the last given", port)
	}
}

func TestGroupsOfAGangFormOneBarrier(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	spec := gang("rl", 1, 1)
	spec.Groups = append(spec.Groups, muster.Group{Name: "head", Count: 1, Task: muster.Task{Resources: muster.Resources{MilliCores: 1000}}})
	id := w.submit(spec)
	allocs := w.place(id, "gpu-01", "gpu-01")
	if allocs[0].Port == 0 || allocs[1].Port != 0 {
		t.Errorf("ports %d, %d", allocs[0].Port, allocs[1].Port)
	}
	w.report(allocs[1], muster.AllocReport{Phase: muster.AllocEnded, Class: muster.ClassPrepare, Message: "no folder /data"})
	j := w.expect(id, muster.JobStopping)
	if want := "rank 0 of head on gpu-01 could not be prepared: no folder /data"; j.Attempts[0].Reason != want {
		t.Errorf("%q", j.Attempts[0].Reason)
	}
	w.reach(muster.AllocReady, allocs[0])
	if w.alloc(allocs[0]).Go {
		t.Errorf("the barrier of a failed attempt opened")
	}
	w.report(allocs[0], muster.AllocReport{Phase: muster.AllocEnded})
	if got := w.alloc(allocs[0]).Class; got != muster.ClassCollateral {
		t.Errorf("%s", got)
	}
	w.expect(id, muster.JobPending)
}
