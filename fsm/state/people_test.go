package state

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func ann(id string) Header { return Header{RequestID: id, User: "ann"} }

func TestAHeldJobWaitsForItsRelease(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id := w.submit(gang("train", 1, 2))
	w.do(&Hold{Header: ann("h"), Jobs: []muster.JobID{id}})
	j := w.expect(id, muster.JobHeld)
	if j.Reason != "held by ann; muster release 1 lets it go on" || j.Class != muster.ClassNone {
		t.Errorf("%q %s", j.Reason, j.Class)
	}
	for range w.snapshot().Pending() {
		t.Error("a held job may start")
	}
	if r := w.do(&Hold{Header: ann("h2"), Jobs: []muster.JobID{id}}); len(r.Notes) != 1 || r.Notes[0] != "1 is held already" {
		t.Errorf("%v", r.Notes)
	}
	w.do(&Release{Header: ann("r"), Jobs: []muster.JobID{id}})
	if j := w.expect(id, muster.JobPending); j.Reason != "" {
		t.Errorf("%q", j.Reason)
	}
	w.run(id, "gpu-01")
	err := w.refuse(&Hold{Header: ann("h3"), Jobs: []muster.JobID{id}}, muster.KindConflict)
	if err.Message != "1 is running: only what waits can be held" {
		t.Errorf("%v", err)
	}
}

func TestAJobMayBeSubmittedHeld(t *testing.T) {
	w := newStory(t)
	r := w.do(&Submit{Header: ann("s"), Specs: []*muster.JobSpec{gang("train", 1, 0)}, Hold: true})
	w.expect(r.Jobs[0], muster.JobHeld)
}

func TestAPriorityOrdersWhatWaits(t *testing.T) {
	w := newStory(t)
	first, second := w.submit(gang("a", 1, 0)), w.submit(gang("b", 1, 0))
	w.do(&SetPriority{Header: ann("p"), Jobs: []muster.JobID{second}, Priority: 90})
	var order []muster.JobID
	for k := range w.snapshot().Pending() {
		order = append(order, k.Job)
	}
	if len(order) != 2 || order[0] != second || order[1] != first {
		t.Errorf("%v", order)
	}
	w.refuse(&SetPriority{Header: ann("p2"), Jobs: []muster.JobID{first}, Priority: 101}, muster.KindInvalid)
	w.do(&Cancel{Header: ann("c"), Jobs: []muster.JobID{first}, Mode: muster.StopSave})
	w.refuse(&SetPriority{Header: ann("p3"), Jobs: []muster.JobID{first}, Priority: 1}, muster.KindConflict)
}

func TestARequeuedJobSavesItselfAndTakesItsOldPlace(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id := w.submit(gang("train", 1, 2))
	w.do(&Requeue{Header: ann("q0"), Jobs: []muster.JobID{id}})
	w.expect(id, muster.JobPending)
	w.run(id, "gpu-01")
	w.do(&Requeue{Header: ann("q"), Jobs: []muster.JobID{id}})
	w.expect(id, muster.JobStopping)
	if stop := w.ranks(id)[0].Stop; stop.Mode != muster.StopSave || stop.Class != muster.ClassPreempted {
		t.Errorf("%+v", stop)
	}
	w.do(&ReportAllocs{Node: w.node("gpu-01").ID, Allocs: []muster.AllocReport{{ID: w.ranks(id)[0].ID, Phase: muster.AllocEnded}}})
	j := w.expect(id, muster.JobPending)
	if at := j.Attempts[0]; at.Class != muster.ClassPreempted || at.Reason != "requeued by ann" || j.Failures != 0 || j.ClusterFailures != 0 {
		t.Errorf("%+v", j)
	}
	w.do(&Hold{Header: ann("h"), Jobs: []muster.JobID{id}})
	w.refuse(&Requeue{Header: ann("q2"), Jobs: []muster.JobID{id}}, muster.KindConflict)
	w.do(&Cancel{Header: ann("c"), Jobs: []muster.JobID{id}, Mode: muster.StopSave})
	if err := w.refuse(&Requeue{Header: ann("q3"), Jobs: []muster.JobID{id}}, muster.KindConflict); !strings.Contains(err.Hint, "muster rerun 1") {
		t.Errorf("%+v", err)
	}
}

func TestWhatDidNotStartInTimeIsCancelled(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	submit := func(id string) muster.JobID {
		return w.do(&Submit{Header: ann(id), Specs: []*muster.JobSpec{gang("train", 1, 2)}, StartWithin: 10 * time.Minute}).Jobs[0]
	}
	placed, waits := submit("a"), submit("b")
	w.run(placed, "gpu-01")
	w.wait(10*time.Minute - time.Second)
	w.do(&StartDue{Term: term, Jobs: []muster.JobID{placed, waits}})
	w.expect(waits, muster.JobPending)
	w.wait(2 * time.Second)
	w.apply(&Wake{Term: term})
	due := []muster.JobID{}
	for id := range w.snapshot().StartDue(w.now) {
		due = append(due, id)
	}
	if len(due) != 1 || due[0] != waits {
		t.Fatalf("%v", due)
	}
	w.do(&StartDue{Term: term, Jobs: []muster.JobID{placed, waits}})
	w.expect(placed, muster.JobRunning)
	if j := w.expect(waits, muster.JobCancelled); j.ExitCode != muster.CodeNotStarted || j.Reason != "it was to start within 10m" {
		t.Errorf("%d %q", j.ExitCode, j.Reason)
	}
}

func TestOnlyANodeThatIsLostAndEmptyIsRemoved(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	id := w.submit(gang("train", 1, 2))
	w.run(id, "gpu-01")
	remove := func(id string) *RemoveNodes { return &RemoveNodes{Header: ann(id), Nodes: []string{"gpu-01"}} }
	if err := w.refuse(remove("a"), muster.KindConflict); err.Message != "gpu-01 holds 1 allocation" {
		t.Errorf("%v", err)
	}
	w.do(&Cancel{Header: ann("c"), Jobs: []muster.JobID{id}, Mode: muster.StopKill})
	w.do(&ReportAllocs{Node: w.node("gpu-01").ID, Allocs: []muster.AllocReport{{ID: w.ranks(id)[0].ID, Phase: muster.AllocEnded}}})
	if err := w.refuse(remove("b"), muster.KindConflict); err.Message != "gpu-01 is alive: only a node that is lost can be removed" {
		t.Errorf("%v", err)
	}
	w.do(&FenceNode{Header: ann("f"), Node: "gpu-01"})
	w.do(remove("d"))
	if _, ok := w.snapshot().NodeNamed("gpu-01"); ok {
		t.Error("it is still listed")
	}
	w.refuse(remove("e"), muster.KindNotFound)
	// What ran there still says where.
	if n, ok := w.snapshot().Node(w.ranks(id)[0].Node); !ok || n.Name != "gpu-01" {
		t.Error("an old rank's node is not known any more")
	}
	// Another machine of the name is a node again.
	back := machine("gpu-01", 4)
	back.Hardware, back.Session = "another", "another"
	w.do(&RegisterNode{Node: back, Replaces: NoSession})
	if n := w.node("gpu-01"); n.Removed || n.Lost {
		t.Errorf("%+v", n)
	}
}

func TestASetLabelWinsOverTheAgentsFile(t *testing.T) {
	w := newStory(t)
	m := machine("gpu-01", 8)
	m.Labels = []muster.Label{{Key: "rack", Value: "r1"}}
	w.register(m)
	label := func(want string) {
		t.Helper()
		var got []string
		for _, l := range w.node("gpu-01").Labels {
			got = append(got, l.Key+"="+l.Value)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("labels %q, want %q", s, want)
		}
	}
	w.do(&LabelNode{Header: ann("a"), Node: "gpu-01", Set: []muster.Label{{Key: "rack", Value: "r7"}, {Key: "fast", Value: "yes"}}})
	label("fast=yes rack=r7")
	m.Labels = []muster.Label{{Key: "rack", Value: "r2"}, {Key: "zone", Value: "eu"}}
	w.register(m)
	label("fast=yes rack=r7 zone=eu")
	w.do(&LabelNode{Header: ann("b"), Node: "gpu-01", Remove: []string{"rack", "fast"}})
	label("rack=r2 zone=eu")
	if err := w.refuse(&LabelNode{Header: ann("c"), Node: "gpu-01", Remove: []string{"rack"}}, muster.KindConflict); err.Message !=
		"the label rack = r2 comes from the agent's file on gpu-01" {
		t.Errorf("%v", err)
	}
	w.refuse(&LabelNode{Header: ann("d"), Node: "gpu-01", Remove: []string{"rock"}}, muster.KindNotFound)
	w.refuse(&LabelNode{Header: ann("e"), Node: "gpu-01", Set: []muster.Label{{Key: "0", Value: "x"}}}, muster.KindInvalid)
}

func TestEventsTellAJobsLife(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id := w.submit(gang("train", 1, 2))
	w.run(id, "gpu-01")
	w.do(&DrainNodes{Header: ann("d"), Nodes: []string{"gpu-01"}, Reason: "fan", HasDeadline: true})
	w.do(&ReportAllocs{Node: w.node("gpu-01").ID, Allocs: []muster.AllocReport{{ID: w.ranks(id)[0].ID, Phase: muster.AllocEnded}}})
	w.do(&Cancel{Header: ann("c"), Jobs: []muster.JobID{id}, Mode: muster.StopKill})
	kinds := func(s *Snapshot) string {
		var list []string
		for e := range s.Events(0, 0) {
			list = append(list, e.Kind.String())
		}
		return strings.Join(list, " ")
	}
	want := "node.registered job.submitted job.placed job.started node.draining job.stopping job.attempt_ended job.cancelled"
	if got := kinds(w.snapshot()); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	// They are in the snapshot file, and go on from there.
	restored, err := Restore(w.index, rowsOf(w.snapshot()))
	if err != nil || kinds(restored.Snapshot()) != want {
		t.Errorf("%v: %s", err, kinds(restored.Snapshot()))
	}
	// A reader goes on behind what it has seen.
	var draining *Event
	for e := range w.snapshot().Events(0, 0) {
		if e.Kind == EventNodeDraining {
			draining = e
		}
	}
	for e := range w.snapshot().Events(draining.Index, draining.Nth) {
		if e.Kind != EventStopping || e.Index != draining.Index {
			t.Errorf("%+v", e)
		}
		break
	}
}

func TestTheNewestEventsAreKept(t *testing.T) {
	w := newStory(t)
	id := w.submit(gang("train", 1, 0))
	for i := range 3 * eventsKept / 2 {
		w.index++
		w.s.Apply(Entry{Stamp: w.now, Commands: []Command{
			&SetPriority{Jobs: []muster.JobID{id}, Priority: i % 2}, &SetPriority{Jobs: []muster.JobID{id}, Priority: i%2 + 1}}}, w.index, term)
	}
	count, last := 0, Event{}
	for e := range w.snapshot().Events(0, 0) {
		if count > 0 && (e.Index < last.Index || e.Index == last.Index && e.Nth != last.Nth+1) {
			t.Fatalf("%d/%d after %d/%d", e.Index, e.Nth, last.Index, last.Nth)
		}
		count, last = count+1, *e
	}
	if count != eventsKept || last.Index != w.index {
		t.Errorf("%d events to %d, want %d to %d", count, last.Index, eventsKept, w.index)
	}
}
