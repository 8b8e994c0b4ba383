package state

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func TestAGangGoesThroughItsLife(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	id := w.submit(gang("train", 2, 8))
	if j := w.expect(id, muster.JobPending); j.Attempts != nil {
		t.Errorf("a job that was never placed has attempts: %+v", j.Attempts)
	}
	if q, _ := w.snapshot().Queue("default"); q.Pending != 1 || q.Running != 0 {
		t.Errorf("queue: %+v", q)
	}

	allocs := w.place(id, "gpu-01", "gpu-02")
	w.expect(id, muster.JobPreparing)
	if q, _ := w.snapshot().Queue("default"); q.Pending != 0 || q.Running != 1 || q.GPUs != 16 {
		t.Errorf("queue: %+v", q)
	}
	if a := allocs[0]; a.Port != 20000 || a.Lease != muster.DefaultLease || a.Go || a.PlacedAt != w.index {
		t.Errorf("rank 0: %+v", a)
	}
	if allocs[1].Port != 0 {
		t.Errorf("rank 1 has a master port")
	}
	if n := w.node("gpu-01"); n.FreeSlots != 0 || n.FreeMilliCores != 0 || n.Allocs != 1 {
		t.Errorf("gpu-01: %+v", n)
	}

	w.reach(muster.AllocPreparing, allocs...)
	w.reach(muster.AllocReady, allocs[0])
	if w.alloc(allocs[0]).Go {
		t.Errorf("the barrier opened before the last rank was ready")
	}
	w.reach(muster.AllocReady, allocs[1])
	for _, a := range allocs {
		if !w.alloc(a).Go {
			t.Errorf("rank %d may not start though all are ready", a.Rank)
		}
	}
	if !slices.Equal(w.last.Nodes, []muster.NodeID{1, 2}) {
		t.Errorf("the open barrier must wake both nodes, changed: %+v", w.last)
	}
	w.wait(time.Second)
	w.reach(muster.AllocRunning, allocs[0])
	w.expect(id, muster.JobPreparing)
	w.reach(muster.AllocRunning, allocs[1])
	if j := w.expect(id, muster.JobRunning); j.Started != w.now || j.Attempts[0].Started != w.now-1000 {
		t.Errorf("started %d, barrier %d, now %d", j.Started, j.Attempts[0].Started, w.now)
	}

	w.exit(allocs[0], 0)
	w.expect(id, muster.JobRunning)
	w.wait(time.Hour)
	w.exit(allocs[1], 0)
	if j := w.expect(id, muster.JobSucceeded); j.Finished != w.now || j.ExitCode != 0 || j.Class != muster.ClassNone {
		t.Errorf("%+v", j)
	}
	if q, _ := w.snapshot().Queue("default"); *q != (muster.Queue{Name: "default"}) {
		t.Errorf("at rest the queue counts %+v", q)
	}
	if n := w.node("gpu-02"); n.FreeSlots.Count() != 8 || n.FreeMilliCores != n.MilliCores || n.FreeMemory != n.Memory {
		t.Errorf("at rest gpu-02 is not free: %+v", n)
	}
	if _, ok := w.snapshot().Shape(w.job(id).Shape); ok {
		t.Errorf("the shape outlived the last live job that had it")
	}
}

func TestALoneRankMayStartWithItsPlacement(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id := w.submit(gang("hello", 1, 1))
	a := w.place(id, "gpu-01")[0]
	if !a.Go {
		t.Fatalf("nobody to wait for, and yet it waits")
	}
	// It was so quick that its end is the first that is heard of it.
	w.report(a, muster.AllocReport{Phase: muster.AllocEnded, Running: 5, Ended: 6})
	if j := w.expect(id, muster.JobSucceeded); j.Started == 0 {
		t.Errorf("it ran, and has no start: %+v", j)
	}
	if a = w.alloc(a); a.Running != 5 || a.Ended != 6 {
		t.Errorf("%+v", a)
	}
}

func TestTheFirstRankToFailIsNamedAndTheOthersAreCollateral(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	id := w.submit(gang("train", 3, 4))
	allocs := w.run(id, "gpu-01", "gpu-01", "gpu-02")
	w.report(allocs[2], muster.AllocReport{Phase: muster.AllocEnded, Class: muster.ClassExit, ExitCode: 3})
	w.expect(id, muster.JobStopping)
	for _, a := range allocs[:2] {
		if stop := w.alloc(a).Stop; stop.Mode != muster.StopTerm || stop.Class != muster.ClassCollateral {
			t.Errorf("rank %d: %+v", a.Rank, stop)
		}
	}
	w.exit(allocs[0], 143)
	w.exit(allocs[1], 0)
	j := w.expect(id, muster.JobFailed)
	if j.Class != muster.ClassExit || j.ExitCode != 3 || j.Reason != "rank 2 on gpu-02 ended with exit code 3" {
		t.Errorf("%s %d %q", j.Class, j.ExitCode, j.Reason)
	}
	if at := j.Attempts[0]; at.Culprit != allocs[2].ID {
		t.Errorf("culprit %s", at.Culprit)
	}
	for _, a := range allocs[:2] {
		if got := w.alloc(a).Class; got != muster.ClassCollateral {
			t.Errorf("rank %d ended %s", a.Rank, got)
		}
	}
}

func TestExitCodesOfJobs(t *testing.T) {
	for _, tc := range []struct {
		report muster.AllocReport
		code   int
		reason string
	}{
		{muster.AllocReport{Class: muster.ClassExit, ExitCode: 85}, 85, "rank 0 on gpu-01 ended with exit code 85"},
		{muster.AllocReport{Class: muster.ClassExit, Signal: 11}, 139, "rank 0 on gpu-01 was ended by signal 11"},
		{muster.AllocReport{Class: muster.ClassOOM, Signal: 9}, 137, "rank 0 on gpu-01 ran out of memory"},
		{muster.AllocReport{Class: muster.ClassTimeout, ExitCode: 0}, 0, "rank 0 on gpu-01 reached its time limit"},
		{muster.AllocReport{Class: muster.ClassExit, ExitCode: 127, Message: "no nonesuch in PATH"}, 127,
			"rank 0 on gpu-01 ended with exit code 127: no nonesuch in PATH"},
	} {
		w := newStory(t)
		w.register(machine("gpu-01", 8))
		id := w.submit(gang("x", 1, 1))
		a := w.run(id, "gpu-01")[0]
		tc.report.Phase = muster.AllocEnded
		w.report(a, tc.report)
		if j := w.expect(id, muster.JobFailed); j.ExitCode != tc.code || j.Reason != tc.reason || j.Class != tc.report.Class {
			t.Errorf("%+v: %s, code %d, %q", tc.report, j.Class, j.ExitCode, j.Reason)
		}
	}
}

func TestRetriesAreCountedDelayedAndWoken(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	spec := gang("flaky", 1, 1)
	spec.Groups[0].Retry = muster.Retry{Attempts: 2, On: []muster.Class{muster.ClassExit}, ExitCodes: []int{85},
		Delay: 15 * time.Second, MaxDelay: 20 * time.Second}
	id := w.submit(spec)
	for n, want := range []time.Duration{15 * time.Second, 20 * time.Second} {
		w.exit(w.run(id, "gpu-01")[0], 85)
		j := w.expect(id, muster.JobPending)
		if j.Backoff != want || j.Failures != uint32(n+1) {
			t.Fatalf("failure %d: back-off %s, %d failures", n+1, j.Backoff, j.Failures)
		}
		if keys := slices.Collect(w.snapshot().Pending()); len(keys) != 0 {
			t.Fatalf("a job that backs off is eligible: %+v", keys)
		}
		if waiting := slices.Collect(w.snapshot().BackingOff()); len(waiting) != 1 || waiting[0].ID != id {
			t.Fatalf("backing off: %+v", waiting)
		}
		if reason := w.commit(w.plan(id, "gpu-01")); !strings.Contains(reason, "waits for the delay") {
			t.Fatalf("placed in its back-off: %q", reason)
		}
		w.do(&Wake{Term: term, Jobs: []muster.JobID{id, 99}})
		if keys := slices.Collect(w.snapshot().Pending()); len(keys) != 1 {
			t.Fatalf("woken, and not eligible")
		}
	}
	w.exit(w.run(id, "gpu-01")[0], 85)
	if j := w.expect(id, muster.JobFailed); j.ExitCode != 85 || j.Attempt != 3 {
		t.Errorf("%+v", j)
	}

	other := w.submit(spec)
	w.exit(w.run(other, "gpu-01")[0], 1)
	w.expect(other, muster.JobFailed) // not one of its exit codes
}

func TestWhatTheClusterDidIsTriedAgainUntilTheLoopGuardHoldsIt(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id := w.submit(gang("unlucky", 1, 1))
	fail := func() *muster.Job {
		t.Helper()
		w.wait(time.Minute)
		w.report(w.place(id, "gpu-01")[0], muster.AllocReport{Phase: muster.AllocEnded, Class: muster.ClassPrepare, Message: "no folder /data"})
		j := w.job(id)
		w.do(&Wake{Term: term, Jobs: []muster.JobID{id}})
		return j
	}
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		if j := fail(); j.Phase != muster.JobPending || j.Backoff != want || j.Failures != 0 {
			t.Fatalf("attempt %d: %s, back-off %s, %d failures", i+1, j.Phase, j.Backoff, j.Failures)
		}
	}
	j := fail()
	if j.Phase != muster.JobHeld || j.Class != muster.ClassPrepare || j.Reason != "node, GPU or preparation failed "+
		"five times in a row, at last: rank 0 on gpu-01 could not be prepared: no folder /data; muster release 1 lets it go on" {
		t.Fatalf("%s: %q", j.Phase, j.Reason)
	}
	w.do(&Release{Jobs: []muster.JobID{id}})
	w.expect(id, muster.JobPending)
	if r := w.do(&Release{Jobs: []muster.JobID{id}}); r.Notes[0] != "1 is not held: pending" {
		t.Errorf("%q", r.Notes)
	}

	// A long attempt is no loop.
	for range 7 {
		a := w.run(id, "gpu-01")[0]
		w.wait(11 * time.Minute)
		w.report(a, muster.AllocReport{Phase: muster.AllocEnded, Class: muster.ClassNode})
		if j := w.expect(id, muster.JobPending); j.Backoff != 0 || j.ClusterFailures != 0 {
			t.Fatalf("%+v", j)
		}
	}
}

func TestCancelWhereverAJobStands(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	cancel := func(mode muster.StopMode, ids ...muster.JobID) Result {
		t.Helper()
		return w.do(&Cancel{Header: Header{User: "ann"}, Jobs: ids, Mode: mode})
	}
	pending := w.submit(gang("a", 1, 1))
	cancel(muster.StopSave, pending)
	if j := w.expect(pending, muster.JobCancelled); j.Reason != "cancelled by ann" || j.Class != muster.ClassCancelled || j.Attempt != 0 {
		t.Errorf("%+v", j)
	}
	if reason := w.commit(GangPlacement{Job: pending, Attempt: 1}); reason != "the job is cancelled" {
		t.Errorf("%q", reason)
	}
	if r := cancel(muster.StopSave, pending); r.Notes[0] != "1 had already ended: cancelled" {
		t.Errorf("%q", r.Notes)
	}

	running := w.submit(gang("b", 2, 1))
	allocs := w.run(running, "gpu-01", "gpu-01")
	cancel(muster.StopKill, running)
	cancel(muster.StopSave, running) // a mode only goes up
	w.expect(running, muster.JobStopping)
	for _, a := range allocs {
		if stop := w.alloc(a).Stop; stop.Mode != muster.StopKill || stop.Class != muster.ClassCancelled {
			t.Errorf("%+v", stop)
		}
		w.report(a, muster.AllocReport{Phase: muster.AllocEnded, Class: muster.ClassExit, Signal: 9})
	}
	w.expect(running, muster.JobCancelled)

	saving := w.submit(gang("c", 1, 1))
	a := w.run(saving, "gpu-01")[0]
	cancel(muster.StopSave, saving)
	w.exit(a, 0) // saved itself, and is cancelled all the same
	w.expect(saving, muster.JobCancelled)

	// A rank failed already and the others are being stopped: a cancel means no retry.
	spec := gang("d", 2, 1)
	spec.Groups[0].Retry = muster.Retry{Attempts: 3, On: []muster.Class{muster.ClassExit}}
	failing := w.submit(spec)
	allocs = w.run(failing, "gpu-01", "gpu-01")
	w.exit(allocs[0], 1)
	cancel(muster.StopSave, failing)
	w.exit(allocs[1], 1)
	w.expect(failing, muster.JobCancelled)

	w.refuse(&Cancel{Jobs: []muster.JobID{404}, Mode: muster.StopSave}, muster.KindNotFound)
	w.refuse(&Cancel{Jobs: []muster.JobID{1}}, muster.KindInvalid)
}

func TestRanksThatHoldTheirPlaceEndWithTheFirst(t *testing.T) {
	begin := func(t *testing.T) (*story, muster.JobID, []*muster.Allocation) {
		w := newStory(t)
		w.register(machine("gpu-01", 8), machine("gpu-02", 8))
		spec := gang("mpi", 3, 4)
		spec.Groups[0].Task.Start, spec.Groups[0].Checkpoint.Grace = muster.StartFirst, time.Minute
		id := w.submit(spec)
		return w, id, w.run(id, "gpu-01", "gpu-01", "gpu-02")
	}
	t.Run("it succeeds", func(t *testing.T) {
		w, id, allocs := begin(t)
		w.exit(allocs[0], 0)
		w.expect(id, muster.JobRunning)
		for _, a := range allocs[1:] {
			if stop := w.alloc(a).Stop; stop.Mode != muster.StopTerm || stop.Class != muster.ClassNone {
				t.Errorf("rank %d: %+v", a.Rank, stop)
			}
		}
		w.exit(allocs[1], 143)
		w.report(allocs[2], muster.AllocReport{Phase: muster.AllocEnded, Class: muster.ClassNode})
		if j := w.expect(id, muster.JobSucceeded); j.Class != muster.ClassNone {
			t.Errorf("%+v", j)
		}
	})
	t.Run("it fails", func(t *testing.T) {
		w, id, allocs := begin(t)
		w.exit(allocs[0], 3)
		w.exit(allocs[1], 143)
		w.exit(allocs[2], 143)
		if j := w.expect(id, muster.JobFailed); j.Class != muster.ClassExit || j.ExitCode != 3 {
			t.Errorf("%+v", j)
		}
	})
	t.Run("it saves itself first", func(t *testing.T) {
		w, id, allocs := begin(t)
		w.do(&Cancel{Header: Header{User: "ann"}, Jobs: []muster.JobID{id}, Mode: muster.StopSave})
		if stop := w.alloc(allocs[1]).Stop; stop.Mode != muster.StopSave {
			t.Errorf("the others hold their place while it saves, and got %+v", stop)
		}
		w.exit(allocs[0], 0)
		if stop := w.alloc(allocs[1]).Stop; stop.Mode != muster.StopTerm || stop.Class != muster.ClassCancelled {
			t.Errorf("then they are let go, and got %+v", stop)
		}
		w.exit(allocs[1], 143)
		w.exit(allocs[2], 143)
		w.expect(id, muster.JobCancelled)
	})
	t.Run("another is lost meanwhile", func(t *testing.T) {
		w, id, allocs := begin(t)
		w.report(allocs[1], muster.AllocReport{Phase: muster.AllocEnded, Class: muster.ClassNode})
		w.exit(allocs[0], 143)
		w.exit(allocs[2], 143)
		w.expect(id, muster.JobPending)
	})
}

func TestATimeLimitDoesNotCutOtherRanksShort(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id := w.submit(gang("train", 2, 1))
	allocs := w.run(id, "gpu-01", "gpu-01")
	w.report(allocs[0], muster.AllocReport{Phase: muster.AllocEnded, Class: muster.ClassTimeout})
	if stop := w.alloc(allocs[1]).Stop; stop.Mode != muster.StopSave {
		t.Errorf("the other rank saves itself too, and got %+v", stop)
	}
	w.report(allocs[1], muster.AllocReport{Phase: muster.AllocEnded, Class: muster.ClassTimeout})
	if j := w.expect(id, muster.JobFailed); j.Class != muster.ClassTimeout {
		t.Errorf("%+v", j)
	}
}

func TestFinalIsFinal(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	id := w.submit(gang("x", 1, 1))
	a := w.run(id, "gpu-01")[0]
	w.exit(a, 0)
	rows := w.s.w.digest
	w.exit(a, 1)
	w.reach(muster.AllocRunning, a)
	a.Node = 2
	w.exit(a, 1)
	if w.s.w.digest != rows {
		t.Errorf("late reports changed something")
	}
}

func TestPurgeForgetsEndedJobs(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	done, live := w.submit(gang("x", 1, 1)), w.submit(gang("x", 1, 1))
	a := w.run(done, "gpu-01")[0]
	w.exit(a, 0)
	if ended := slices.Collect(w.snapshot().Ended(w.now + 1)); !slices.Equal(ended, []muster.JobID{done}) {
		t.Errorf("ended: %v", ended)
	}
	if ended := slices.Collect(w.snapshot().Ended(w.now)); len(ended) != 0 {
		t.Errorf("ended before: %v", ended)
	}
	w.refuse(&Purge{Term: term, Jobs: []muster.JobID{done, live}}, muster.KindConflict)
	w.do(&Purge{Term: term, Jobs: []muster.JobID{done, 404}})
	if _, ok := w.snapshot().Job(done); ok {
		t.Errorf("still there")
	}
	if _, ok := w.snapshot().Alloc(a.ID); ok {
		t.Errorf("its allocation is still there")
	}
	w.do(&Cancel{Jobs: []muster.JobID{live}, Mode: muster.StopSave})
	w.do(&Purge{Term: term, Jobs: []muster.JobID{live}})
	if n := w.s.t.specs.len() + w.s.t.shapes.len() + w.snapshot().JobCount(); n != 0 {
		t.Errorf("%d interned rows left", n)
	}
}

func TestJobsAreFoundByName(t *testing.T) {
	w := newStory(t)
	first, second := w.submit(gang("train", 1, 0)), w.submit(gang("train", 1, 0))
	named := func(want muster.JobID) {
		t.Helper()
		if j, ok := w.snapshot().JobNamed("ann", "train"); !ok || j.ID != want {
			t.Errorf("found %+v, want %d", j, want)
		}
	}
	named(second)
	w.do(&Cancel{Jobs: []muster.JobID{second}, Mode: muster.StopSave})
	named(first)
	w.do(&Cancel{Jobs: []muster.JobID{first}, Mode: muster.StopSave})
	named(second)
	if _, ok := w.snapshot().JobNamed("bob", "train"); ok {
		t.Errorf("bob has none")
	}
	ids := func(jobs func(func(*muster.Job) bool)) (out []muster.JobID) {
		for j := range jobs {
			out = append(out, j.ID)
		}
		return out
	}
	third := w.submit(gang("x", 1, 0))
	if got := ids(w.snapshot().JobsBackward(0)); !slices.Equal(got, []muster.JobID{third, second, first}) {
		t.Errorf("backward %v", got)
	}
	if got := ids(w.snapshot().JobsBackward(second)); !slices.Equal(got, []muster.JobID{second, first}) {
		t.Errorf("backward from the second %v", got)
	}
	if got := ids(w.snapshot().Jobs(second)); !slices.Equal(got, []muster.JobID{second, third}) {
		t.Errorf("forward from the second %v", got)
	}
}

func TestPendingOrder(t *testing.T) {
	w := newStory(t)
	urgent := gang("a", 1, 0)
	urgent.Priority = 90
	first := w.submit(gang("a", 1, 0))
	second := w.submit(urgent)
	w.do(&Submit{Header: Header{User: "aaron"}, Specs: []*muster.JobSpec{gang("a", 1, 0)}})
	var order []muster.JobID
	for k := range w.snapshot().Pending() {
		if !w.snapshot().IsPending(k) {
			t.Errorf("%+v", k)
		}
		order = append(order, k.Job)
	}
	if !slices.Equal(order, []muster.JobID{3, second, first}) {
		t.Errorf("%v", order)
	}
}
