package state

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

// tree applies queues; each edit changes the spec of a queue.
func (w *story) tree(edits map[string]func(*muster.QueueSpec), names ...string) {
	w.t.Helper()
	w.do(treeOf(edits, names...))
}

func treeOf(edits map[string]func(*muster.QueueSpec), names ...string) *ApplyQueues {
	a := &ApplyQueues{Header: Header{User: "root"}, Policy: muster.DefaultPolicy()}
	for _, name := range names {
		q := muster.NewQueueSpec(name)
		if edit := edits[name]; edit != nil {
			edit(&q)
		}
		a.Queues = append(a.Queues, q)
	}
	return a
}

func inQueue(queue, name string, count, gpus int) *muster.JobSpec {
	spec := gang(name, count, gpus)
	spec.Queue = queue
	return spec
}

func (w *story) submitAs(user string, spec *muster.JobSpec) muster.JobID {
	w.t.Helper()
	return w.do(&Submit{Header: Header{User: user}, Specs: []*muster.JobSpec{spec}}).Jobs[0]
}

func (w *story) refuseAs(user string, spec *muster.JobSpec, kind muster.Kind, field, want string) {
	w.t.Helper()
	err := w.refuse(&Submit{Header: Header{User: user}, Specs: []*muster.JobSpec{spec}}, kind)
	if err.Field != field || !strings.Contains(err.Error(), want) {
		w.t.Errorf("%s: %v; want %s: %s", err.Field, err, field, want)
	}
}

func TestAQueueThatIsInUseStays(t *testing.T) {
	w := newStory(t)
	w.tree(nil, "research", "research/nlp")
	id := w.submit(inQueue("research/nlp", "train", 1, 1))
	err := w.refuse(treeOf(nil, "research"), muster.KindConflict)
	if !strings.Contains(err.Error(), `queue "research/nlp" cannot be removed: 1 job has not ended in it`) {
		t.Errorf("%v", err)
	}
	w.do(&Cancel{Jobs: []muster.JobID{id}, Mode: muster.StopSave})
	w.tree(nil, "research")
	if _, ok := w.snapshot().Queue("research/nlp"); ok {
		t.Error("the queue is still there")
	}
	if _, ok := w.snapshot().Queue(muster.DefaultQueue); !ok {
		t.Error("the default queue has gone")
	}
	if _, err := Restore(w.index, rowsOf(w.snapshot())); err != nil {
		t.Errorf("what has ended in a queue that is gone is not restored: %v", err)
	}
	w.refuseAs("ann", inQueue("nlp", "a", 1, 1), muster.KindInvalid, "jobs[0].queue", `queue "nlp" does not exist`)
	w.refuseAs("ann", inQueue("Research", "a", 1, 1), muster.KindInvalid, "jobs[0].queue", `Did you mean "research"?`)
}

func TestAJobGetsWhatItsQueueSaysAndNoMoreThanItAllows(t *testing.T) {
	w := newStory(t)
	w.tree(map[string]func(*muster.QueueSpec){
		"nlp": func(q *muster.QueueSpec) {
			q.Allow = []string{"ann", "group:nlp"}
			q.Defaults = muster.QueueDefaults{TimeLimit: time.Hour, HasPriority: true, Priority: 30}
			q.Caps = muster.QueueCaps{TimeLimit: 24 * time.Hour, HasPriority: true, Priority: 60, StopAfter: time.Minute}
		},
		"short": func(q *muster.QueueSpec) {
			q.Caps = muster.QueueCaps{TimeLimit: time.Hour, HasPriority: true, Priority: 20}
		},
	}, "nlp", "short")

	spec := inQueue("nlp", "train", 1, 1)
	spec.PriorityOfQueue = true
	j := w.job(w.submit(spec))
	if got := w.snapshot().Spec(j.Spec); j.Priority != 30 || got.Priority != 30 || got.TimeLimit != time.Hour || got.PriorityOfQueue {
		t.Errorf("priority %d, spec %+v", j.Priority, got)
	}
	own := inQueue("nlp", "train", 1, 1)
	own.Priority, own.TimeLimit = 60, 24*time.Hour
	if j := w.job(w.submit(own)); j.Priority != 60 || w.snapshot().Spec(j.Spec).TimeLimit != 24*time.Hour {
		t.Errorf("priority %d", j.Priority)
	}

	high, long, lonely, none := inQueue("nlp", "a", 1, 1), inQueue("nlp", "a", 1, 1), inQueue("nlp", "a", 1, 1), inQueue("short", "a", 1, 1)
	high.Priority, long.TimeLimit, lonely.Groups[0].Disconnect.StopAfter, none.PriorityOfQueue = 61, 25*time.Hour, time.Hour, true
	w.refuseAs("ann", high, muster.KindInvalid, "jobs[0].priority", `queue "nlp" caps priority at 60, and the job asks for 61`)
	w.refuseAs("ann", long, muster.KindInvalid, "jobs[0].time_limit", `queue "nlp" caps time_limit at 1d, and the job asks for 1d1h`)
	w.refuseAs("ann", lonely, muster.KindInvalid, "jobs[0].groups[0].disconnect.stop_after", `caps stop_after at 1m`)
	w.refuseAs("ann", none, muster.KindInvalid, "jobs[0].time_limit", `queue "short" takes only jobs with a time_limit, of at most 1h`)
	none.TimeLimit = time.Minute
	if j := w.job(w.submit(none)); j.Priority != 20 {
		t.Errorf("who says no priority gets %d, and the cap is 20", j.Priority)
	}
	w.refuseAs("bob", spec, muster.KindDenied, "jobs[0].queue", `bob may not submit to queue "nlp". It is for ann, group:nlp`)
	w.do(&Submit{Header: Header{User: "bob"}, Groups: []string{"users", "nlp"}, Specs: []*muster.JobSpec{spec}})
	w.refuse(&SetPriority{Jobs: []muster.JobID{j.ID}, Priority: 61}, muster.KindInvalid)
}

func TestARetryOfASubmissionIsTheSameAfterTheQueueChanged(t *testing.T) {
	w := newStory(t)
	defaults := func(limit time.Duration) map[string]func(*muster.QueueSpec) {
		return map[string]func(*muster.QueueSpec){"nlp": func(q *muster.QueueSpec) { q.Defaults.TimeLimit = limit }}
	}
	w.tree(defaults(time.Hour), "nlp")
	submit := &Submit{Header: Header{RequestID: "r", User: "ann"}, Specs: []*muster.JobSpec{inQueue("nlp", "a", 1, 1)}}
	first := w.do(submit)
	w.tree(defaults(2*time.Hour), "nlp")
	again := w.do(submit)
	if !again.Replay || again.Jobs[0] != first.Jobs[0] {
		t.Errorf("%+v, first %+v", again, first)
	}
}

func TestNothingStartsBeyondALimit(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	limits := func(max, user, running int) map[string]func(*muster.QueueSpec) {
		return map[string]func(*muster.QueueSpec){
			"research":     func(q *muster.QueueSpec) { q.MaxGPUs, q.MaxRunning = max, running },
			"research/nlp": func(q *muster.QueueSpec) { q.UserGPUs = user },
		}
	}
	w.tree(limits(8, 4, 0), "research", "research/cv", "research/nlp")
	w.refuseAs("ann", inQueue("research/cv", "a", 1, 9), muster.KindInfeasible, "jobs[0].groups[0].task.resources.gpus",
		`job "a" asks for 9 GPUs in all, and queue "research" has max_gpus = 8`)
	w.do(&Submit{Header: Header{User: "ann"}, Specs: []*muster.JobSpec{inQueue("research/cv", "a", 2, 5)}, Pend: true})

	cv := w.submitAs("bob", inQueue("research/cv", "cv", 1, 4))
	nlp := w.submitAs("ann", inQueue("research/nlp", "nlp", 2, 2))
	more := w.submitAs("ann", inQueue("research/nlp", "more", 1, 1))
	other := w.submitAs("bob", inQueue("research/nlp", "other", 1, 1))
	outside := w.submitAs("bob", inQueue(muster.DefaultQueue, "outside", 1, 1))
	cpu := w.submitAs("bob", inQueue("research/nlp", "cpu", 1, 0))
	running := w.run(nlp, "gpu-01", "gpu-01")
	refused := func(id muster.JobID, want string) {
		t.Helper()
		if got := w.commit(w.plan(id, "gpu-02")); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	refused(more, "ann is at 4 of 4 GPUs of a user in queue research/nlp")
	w.run(cv, "gpu-01")
	refused(other, "queue research is at 8 of 8 GPUs")
	w.run(outside, "gpu-02")
	w.run(cpu, "gpu-02") // takes none

	// Two in one plan are counted together.
	w.exit(running[0], 0)
	w.exit(running[1], 0)
	w.tree(limits(5, 4, 0), "research", "research/cv", "research/nlp")
	second := w.plan(other, "gpu-02")
	for i := range second.Ranks {
		second.Ranks[i].Slots = muster.SlotSet(1 << 7)
	}
	r := w.do(&CommitPlan{Term: term, Gangs: []GangPlacement{w.plan(more, "gpu-02"), second}})
	if len(r.Refused) != 1 || r.Refused[0].Job != other || r.Refused[0].Reason != "queue research is at 5 of 5 GPUs" {
		t.Errorf("%+v", r.Refused)
	}

	// Lowering a limit below use stops nothing.
	w.tree(limits(1, 4, 1), "research", "research/cv", "research/nlp")
	w.expect(cv, muster.JobRunning)
	refused(other, "queue research is at 5 of 1 GPUs")
	w.tree(limits(0, 4, 1), "research", "research/cv", "research/nlp")
	refused(other, "queue research is at 3 of 1 running jobs")
	w.tree(limits(0, 4, 0), "research", "research/cv", "research/nlp")
	w.place(other, "gpu-02")
}

func TestAQueueTakesOnlySoManyThatWait(t *testing.T) {
	w := newStory(t)
	w.tree(map[string]func(*muster.QueueSpec){"research": func(q *muster.QueueSpec) { q.MaxPending = 2 }}, "research", "research/nlp")
	w.submit(inQueue("research/nlp", "a", 1, 1))
	two := &Submit{Header: Header{User: "ann"}, Specs: []*muster.JobSpec{inQueue("research", "b", 1, 1), inQueue("research/nlp", "c", 1, 1)}}
	err := w.refuse(two, muster.KindConflict)
	if err.Field != "jobs[1].queue" || !strings.Contains(err.Error(), `queue "research" has 1 jobs waiting, and takes 2 at most (max_pending)`) {
		t.Errorf("%s: %v", err.Field, err)
	}
	w.submit(inQueue("research", "b", 1, 1))
}

func TestJobsOfAQueueGetItsNodes(t *testing.T) {
	w := newStory(t)
	ours, theirs := machine("gpu-01", 8), machine("gpu-02", 8)
	ours.Labels = []muster.Label{{Key: "pool", Value: "nlp"}}
	w.register(ours, theirs)
	before, running := w.submit(inQueue(muster.DefaultQueue, "before", 1, 1)), w.submit(inQueue(muster.DefaultQueue, "running", 1, 1))
	w.run(running, "gpu-02")
	pool := func(value string) map[string]func(*muster.QueueSpec) {
		return map[string]func(*muster.QueueSpec){muster.DefaultQueue: func(q *muster.QueueSpec) {
			q.Constraints = []muster.Constraint{{Attribute: "label.pool", Operator: muster.OpEqual, Value: value}}
		}}
	}
	w.tree(pool("nlp"), muster.DefaultQueue)
	w.expect(running, muster.JobRunning)
	if got := w.commit(w.plan(before, "gpu-02")); got != "gpu-02 does not meet the constraints" {
		t.Errorf("%q", got)
	}
	w.place(before, "gpu-01")
	w.tree(pool("other"), muster.DefaultQueue)
	w.refuseAs("ann", inQueue(muster.DefaultQueue, "a", 1, 1), muster.KindInfeasible, "jobs[0].groups[0].constraints",
		`Jobs in queue "default" get only nodes where label.pool = "other"`)
	w.tree(nil)
	w.submit(inQueue(muster.DefaultQueue, "a", 1, 1))
}

func TestThePolicyIsTheUsualOneUntilAFileSaysOtherwise(t *testing.T) {
	w := newStory(t)
	if got := w.snapshot().Policy(); got != muster.DefaultPolicy() {
		t.Errorf("%+v", got)
	}
	a := treeOf(nil)
	a.Policy.Order = muster.OrderFIFO
	w.do(a)
	if got := w.snapshot().Policy(); got.Order != muster.OrderFIFO {
		t.Errorf("%+v", got)
	}
	a = treeOf(nil, "b", "a")
	w.refuse(a, muster.KindInvalid)
}
