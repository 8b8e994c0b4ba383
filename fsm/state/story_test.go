package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

// story drives a state as a leader and its workers would, and checks the invariants after every entry.
type story struct {
	t     testing.TB
	s     *State
	index muster.Index
	now   muster.Time
	last  Changed
}

const term = 7

func newStory(t testing.TB) *story {
	return &story{t: t, s: New(), now: 1_000_000}
}

// apply applies one command and gives what it answered, refused or not.
func (w *story) apply(c Command) Result {
	w.t.Helper()
	w.index++
	results, changed := w.s.Apply(Entry{Stamp: w.now, Commands: []Command{c}}, w.index, term)
	w.last = changed
	if err := w.s.Snapshot().CheckInvariants(); err != nil {
		w.t.Fatalf("after %T: %v", c, err)
	}
	return results[0]
}

// do applies a command that must be taken.
func (w *story) do(c Command) Result {
	w.t.Helper()
	r := w.apply(c)
	if r.Err != nil {
		w.t.Fatalf("%T: %v", c, r.Err)
	}
	return r
}

// refuse applies a command that must be refused, and must have changed nothing but the time.
func (w *story) refuse(c Command, kind muster.Kind) *muster.Error {
	w.t.Helper()
	before := w.s.w.digest
	r := w.apply(c)
	if r.Err == nil {
		w.t.Fatalf("%T was taken: %+v", c, r)
	}
	if r.Err.Kind != kind {
		w.t.Fatalf("%T: %s: %v, want %s", c, r.Err.Kind, r.Err, kind)
	}
	if w.s.w.digest != before {
		w.t.Fatalf("%T was refused and changed rows", c)
	}
	return r.Err
}

func (w *story) wait(d time.Duration) { w.now = w.now.Add(d) }

func (w *story) snapshot() *Snapshot { return w.s.Snapshot() }

func (w *story) job(id muster.JobID) *muster.Job {
	w.t.Helper()
	j, ok := w.snapshot().Job(id)
	if !ok {
		w.t.Fatalf("no job %d", id)
	}
	return j
}

func (w *story) node(name string) *muster.Node {
	w.t.Helper()
	n, ok := w.snapshot().NodeNamed(name)
	if !ok {
		w.t.Fatalf("no node %s", name)
	}
	return n
}

// ranks gives the allocations of a job's newest attempt.
func (w *story) ranks(id muster.JobID) []*muster.Allocation {
	var out []*muster.Allocation
	for a := range w.snapshot().AllocsOfAttempt(id, w.job(id).Attempt) {
		out = append(out, a)
	}
	return out
}

func (w *story) expect(id muster.JobID, phase muster.JobPhase) *muster.Job {
	w.t.Helper()
	j := w.job(id)
	if j.Phase != phase {
		w.t.Fatalf("job %d is %s (%s), want %s", id, j.Phase, j.Reason, phase)
	}
	return j
}

// machine describes a node with GPUs as its worker would.
func machine(name string, gpus int) muster.Node {
	n := muster.Node{
		Name: name, Address: name + ":7400", Hardware: "hw-" + name, Boot: "boot-1", Instance: "data-1", Session: "session-1",
		MilliCores: 64_000, Memory: 512 * muster.GiB, Fencing: "strong", Version: "0.1.0", PortLow: 20000, PortHigh: 20003,
	}
	for i := range gpus {
		n.GPUs = append(n.GPUs, muster.GPU{UUID: fmt.Sprintf("GPU-%s-%d", name, i), Model: "NVIDIA H100 80GB HBM3",
			Memory: 80 * muster.GiB, Health: muster.GPUHealthy})
	}
	return n
}

// register lets workers register that know of nothing.
func (w *story) register(nodes ...muster.Node) {
	w.t.Helper()
	for _, n := range nodes {
		w.do(&RegisterNode{Node: n})
	}
}

// gang is the spec of a job of equal ranks.
func gang(name string, count, gpus int) *muster.JobSpec {
	return &muster.JobSpec{Name: name, Queue: muster.DefaultQueue, Type: muster.Batch, Priority: 50, Groups: []muster.Group{{
		Name: name, Count: count, Task: muster.Task{Name: name, Command: "true", Resources: muster.Resources{GPUs: gpus}},
	}}}
}

func (w *story) submit(spec *muster.JobSpec) muster.JobID {
	w.t.Helper()
	return w.do(&Submit{Header: Header{User: "ann"}, Specs: []*muster.JobSpec{spec}}).Jobs[0]
}

// plan puts the ranks of a job on nodes, in order, taking the lowest free slots.
func (w *story) plan(id muster.JobID, nodes ...string) GangPlacement {
	w.t.Helper()
	j := w.job(id)
	g := GangPlacement{Job: id, Attempt: j.Attempt + 1}
	spec := w.snapshot().Spec(j.Spec)
	taken := map[string]muster.SlotSet{}
	i := 0
	for group := range spec.Groups {
		need := &spec.Groups[group].Task.Resources
		for rank := range spec.Groups[group].Count {
			n := w.node(nodes[i])
			slots := n.FreeSlots.Minus(taken[n.Name]).Lowest(need.GPUs)
			taken[n.Name] |= slots
			cores, memory := n.Share(need)
			g.Ranks = append(g.Ranks, RankPlacement{Group: group, Rank: rank, Node: n.ID, Slots: slots, MilliCores: cores, Memory: memory})
			i++
		}
	}
	return g
}

func (w *story) commit(g GangPlacement) string {
	w.t.Helper()
	r := w.do(&CommitPlan{Term: term, Gangs: []GangPlacement{g}})
	if len(r.Refused) > 0 {
		return r.Refused[0].Reason
	}
	return ""
}

// place starts a job on nodes and gives its allocations.
func (w *story) place(id muster.JobID, nodes ...string) []*muster.Allocation {
	w.t.Helper()
	if reason := w.commit(w.plan(id, nodes...)); reason != "" {
		w.t.Fatalf("job %d was not placed: %s", id, reason)
	}
	return w.ranks(id)
}

func (w *story) report(a *muster.Allocation, r muster.AllocReport) {
	w.t.Helper()
	r.ID = a.ID
	w.do(&ReportAllocs{Node: a.Node, Allocs: []muster.AllocReport{r}})
}

func (w *story) reach(phase muster.AllocPhase, allocs ...*muster.Allocation) {
	w.t.Helper()
	for _, a := range allocs {
		w.report(a, muster.AllocReport{Phase: phase})
	}
}

// run brings all ranks of a job to running.
func (w *story) run(id muster.JobID, nodes ...string) []*muster.Allocation {
	w.t.Helper()
	allocs := w.place(id, nodes...)
	w.reach(muster.AllocReady, allocs...)
	w.reach(muster.AllocRunning, allocs...)
	w.expect(id, muster.JobRunning)
	return w.ranks(id)
}

func (w *story) exit(a *muster.Allocation, code int) {
	w.t.Helper()
	class := muster.ClassNone
	if code != 0 {
		class = muster.ClassExit
	}
	w.report(a, muster.AllocReport{Phase: muster.AllocEnded, Class: class, ExitCode: code})
}

func (w *story) alloc(a *muster.Allocation) *muster.Allocation {
	w.t.Helper()
	now, ok := w.snapshot().Alloc(a.ID)
	if !ok {
		w.t.Fatalf("no allocation %s", a.ID)
	}
	return now
}
