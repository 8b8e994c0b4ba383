package scheduler

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// queues applies a tree of queues with these rules.
func (w *world) queues(specs ...muster.QueueSpec) {
	w.t.Helper()
	w.apply(&state.ApplyQueues{Queues: specs, Policy: muster.DefaultPolicy()})
}

func queueOf(name string, edit func(*muster.QueueSpec)) muster.QueueSpec {
	q := muster.NewQueueSpec(name)
	edit(&q)
	return q
}

func inQueue(name string) func(*muster.JobSpec) { return func(s *muster.JobSpec) { s.Queue = name } }

func TestWhoIsAtALimitWaitsAndTheOthersStart(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*8")
	w.queues(
		queueOf("research", func(q *muster.QueueSpec) { q.MaxGPUs = 4 }),
		queueOf("research/nlp", func(q *muster.QueueSpec) { q.UserGPUs = 2 }),
	)
	first := w.submitSpec("ann", spec(gpus(1), inQueue("research/nlp")))
	second := w.submitSpec("ann", spec(gpus(1), inQueue("research/nlp")))
	third := w.submitSpec("ann", spec(gpus(1), inQueue("research/nlp")))
	bobs := w.submitSpec("bob", spec(gpus(2), inQueue("research/nlp")))
	late := w.submitSpec("zoe", spec(gpus(1), inQueue("research")))
	cpu := w.submitSpec("ann", spec(cores(1), inQueue("research/nlp")))
	free := w.submitSpec("ann", spec(gpus(1)))
	w.place()
	for _, id := range []muster.JobID{first, second, bobs, cpu, free} {
		if w.at(id) == "" {
			t.Errorf("job %d waits", id)
		}
	}
	w.expect(third, "")
	w.expect(late, "")
	check := func(id muster.JobID, want string) {
		t.Helper()
		e := w.why(id)
		if len(e.Reasons) == 0 || e.Reasons[0].Kind != "quota" || e.Reasons[0].Detail != want || strings.Contains(e.Note, "next pass") {
			t.Errorf("%+v", e)
		}
	}
	check(third, "ann is at 2 of 2 GPUs of a user in queue research/nlp")
	check(late, "queue research is at 4 of 4 GPUs")
	w.end(bobs, muster.ClassExit, 0)
	w.place()
	if w.at(late) == "" {
		t.Error("there is room below the limit, and the job waits")
	}
	w.expect(third, "")
}

func TestAPlanKeepsALimitThatItsOwnJobsReach(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*8")
	w.queues(queueOf(muster.DefaultQueue, func(q *muster.QueueSpec) { q.MaxRunning = 3 }))
	for range 6 {
		w.submit(gpus(1))
	}
	w.place() // commits, and fails where the state refuses a gang
	started := 0
	for id := muster.JobID(1); id <= 6; id++ {
		if w.at(id) != "" {
			started++
		}
	}
	if started != 3 {
		t.Errorf("%d jobs started, want 3", started)
	}
}

func TestJobsOfAQueueGetItsNodes(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "H100*8")
	w.node("n2", "H100*8", label("pool", "nlp"))
	id := w.submit(gpus(1), inQueue(muster.DefaultQueue), ranks(9))
	w.queues(queueOf(muster.DefaultQueue, func(q *muster.QueueSpec) {
		q.Constraints = []muster.Constraint{{Attribute: "label.pool", Operator: muster.OpEqual, Value: "nlp"}}
	}))
	small := w.submit(gpus(1))
	w.place()
	w.expect(id, "")
	w.expect(small, "n2:0")
}
