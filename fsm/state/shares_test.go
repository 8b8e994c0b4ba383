package state

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster"
)

func shareJob(share muster.MilliGPUs) *muster.JobSpec {
	spec := gang("part", 1, 1)
	spec.Groups[0].Task.Resources.Share = share
	return spec
}

func TestSharesOfOneGPUAreGivenOutUntilItIsFull(t *testing.T) {
	w := newStory(t)
	w.register(machine("n1", 2))
	node := w.node("n1").ID
	place := func(id muster.JobID, slot int) string {
		need := &w.snapshot().Spec(w.job(id).Spec).Groups[0].Task.Resources
		cores, memory := w.node("n1").Share(need)
		r := w.do(&CommitPlan{Term: term, Gangs: []GangPlacement{{Job: id, Attempt: 1, Ranks: []RankPlacement{
			{Node: node, Slots: muster.SlotSet(0).With(slot), Share: need.Share, MilliCores: cores, Memory: memory}}}}})
		if len(r.Refused) > 0 {
			return r.Refused[0].Reason
		}
		return ""
	}
	var ids []muster.JobID
	for _, share := range []muster.MilliGPUs{500, 300, 300, 200} {
		ids = append(ids, w.submit(shareJob(share)))
	}
	whole := w.submit(gang("whole", 1, 1))
	for i, want := range []string{"", "", "has 0.2 of a GPU left", ""} {
		if got := place(ids[i], 0); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Fatalf("share %d: %q, want %q", i, got, want)
		}
	}
	if got := place(whole, 0); !strings.Contains(got, "not free") {
		t.Fatalf("a whole GPU of which shares are held: %q", got)
	}
	n := w.node("n1")
	if n.FreeSlots != 0b10 || muster.HeldShare(n.Shared, 0) != 1000 {
		t.Fatalf("free %s, shared %v", n.FreeSlots, n.Shared)
	}
	q, _ := w.snapshot().Queue(muster.DefaultQueue)
	if q.GPUs != 0 || q.Shares != 1000 || q.HeldGPUs() != 1 {
		t.Fatalf("the queue holds %d GPUs and shares of %s", q.GPUs, q.Shares)
	}
	for a := range w.snapshot().AllocsOnNode(node) {
		w.do(&ReportAllocs{Node: node, Allocs: []muster.AllocReport{{ID: a.ID, Phase: muster.AllocEnded, Class: muster.ClassExit}}})
	}
	if n = w.node("n1"); n.FreeSlots != 0b11 || n.Shared != nil {
		t.Fatalf("after all have ended: free %s, shared %v", n.FreeSlots, n.Shared)
	}
	if got := place(whole, 0); got != "" {
		t.Fatalf("the GPU is whole again, but: %s", got)
	}
}

func TestASpecWithAnImpossibleShareIsRefused(t *testing.T) {
	w := newStory(t)
	two := shareJob(500)
	two.Groups[0].Task.Resources.GPUs = 2
	for _, spec := range []*muster.JobSpec{shareJob(1000), shareJob(-1), two} {
		if r := w.apply(&Submit{Specs: []*muster.JobSpec{spec}}); r.Err == nil {
			t.Errorf("a share of %s of %d GPUs was taken", spec.Groups[0].Task.Resources.Share, spec.Groups[0].Task.Resources.GPUs)
		}
	}
}
