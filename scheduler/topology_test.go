package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func wish(label string, patience time.Duration) func(*muster.JobSpec) {
	return func(s *muster.JobSpec) { s.Groups[0].Prefer, s.Groups[0].Patience = label, patience }
}

// twoLeaves is two leaf switches with three machines each.
func twoLeaves(t *testing.T) *world {
	w := newWorld(t)
	for i, leaf := range []string{"a", "a", "a", "b", "b", "b"} {
		w.node("n"+string(rune('1'+i)), "H100*8", label("leaf", leaf))
	}
	return w
}

func (w *world) leaves(id muster.JobID) string {
	w.t.Helper()
	var out []string
	job, _ := w.snap.Job(id)
	for a := range w.snap.AllocsOfAttempt(id, job.Attempt) {
		n, _ := w.snap.Node(a.Node)
		leaf, _ := n.Label("leaf")
		out = append(out, leaf)
	}
	return strings.Join(out, "")
}

// placeAt makes passes at a time and gives when the scheduler wants to be asked again.
func (w *world) placeAt(now muster.Time) muster.Time {
	w.t.Helper()
	for {
		plan := Schedule(w.view, Signals{}, now)
		if plan.Empty() {
			return plan.Wake
		}
		w.commit(plan)
	}
}

func TestAGangTakesTheSmallestLeafThatHoldsIt(t *testing.T) {
	w := twoLeaves(t)
	w.submit(gpus(8), where("label.leaf", muster.OpEqual, "b"))
	w.place()
	gang := w.submit(gpus(8), ranks(2), wish("leaf", time.Hour))
	w.place()
	if got := w.leaves(gang); got != "bb" {
		t.Errorf("two nodes are free in b, three in a: the gang is in %q", got)
	}
}

func TestAGangWaitsForOneLeafUntilItsPatienceIsOver(t *testing.T) {
	w := twoLeaves(t)
	for _, leaf := range []string{"a", "a", "b", "b"} {
		w.submit(gpus(8), where("label.leaf", muster.OpEqual, leaf))
	}
	w.place()
	gang := w.submit(gpus(8), ranks(2), wish("leaf", time.Hour))
	at := muster.Time(2_000_000)
	wake := w.placeAt(at)
	if w.at(gang) != "" || wake != at.Add(time.Hour) {
		t.Fatalf("with patience for an hour it is at %q; the next look is at %d, want %d", w.at(gang), wake, at.Add(time.Hour))
	}
	if e, _ := w.view.Explain(gang, Signals{}, at); !strings.Contains(e.Note, "leaf") {
		t.Errorf("why says nothing of the leaf: %q", e.Note)
	}
	w.placeAt(at.Add(59 * time.Minute))
	if w.at(gang) != "" {
		t.Fatalf("after 59 minutes it is at %q", w.at(gang))
	}
	w.placeAt(wake)
	if got := w.leaves(gang); got != "ab" {
		t.Errorf("after an hour it is in %q", got)
	}
}

func TestAGangThatNoLeafCouldHoldDoesNotWaitForOne(t *testing.T) {
	w := twoLeaves(t)
	gang := w.submit(gpus(8), ranks(5), wish("leaf", time.Hour))
	w.place()
	if got := w.leaves(gang); got != "aaabb" {
		t.Errorf("five nodes of leaves with three: %q", got)
	}
}

func TestASpreadGangUsesTheFewestLeavesAndNumbersItsRanksAlongThem(t *testing.T) {
	w := newWorld(t)
	for i, leaf := range []string{"a", "b", "c", "c", "a", "b"} {
		w.node("n"+string(rune('1'+i)), "H100*8", label("leaf", leaf))
	}
	w.submit(gpus(8), where("node.name", muster.OpEqual, "n1"))
	w.place()
	gang := w.submit(gpus(8), ranks(3), wish("leaf", 0))
	w.place()
	if got := w.leaves(gang); got != "bba" {
		t.Errorf("two in one leaf and the last in the leaf with least: %q", got)
	}
}
