package state

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster"
)

func TestARetryOfARequestNeverMakesASecondJob(t *testing.T) {
	w := newStory(t)
	submit := func(spec *muster.JobSpec) *Submit {
		return &Submit{Header: Header{RequestID: "r-1", User: "ann"}, Specs: []*muster.JobSpec{spec}}
	}
	first := w.do(submit(gang("x", 1, 0)))
	again := w.do(submit(gang("x", 1, 0)))
	if !again.Replay || first.Replay || again.Jobs[0] != first.Jobs[0] || w.snapshot().JobCount() != 1 {
		t.Errorf("first %+v, again %+v, %d jobs", first, again, w.snapshot().JobCount())
	}
	err := w.refuse(submit(gang("y", 1, 0)), muster.KindConflict)
	if !strings.Contains(err.Message, `request id "r-1" was already used for another request`) {
		t.Errorf("%v", err)
	}
	w.refuse(&Cancel{Header: Header{RequestID: "r-1", User: "ann"}, Jobs: []muster.JobID{1}, Mode: muster.StopSave}, muster.KindConflict)

	w.wait(RequestRetention)
	if r := w.do(submit(gang("y", 1, 0))); r.Replay || r.Jobs[0] != 2 {
		t.Errorf("after the retention: %+v", r)
	}
	w.wait(RequestRetention)
	w.do(&Wake{Term: term})
	if n := w.s.t.requests.len(); n != 0 {
		t.Errorf("%d requests are still remembered", n)
	}
}

func TestForgettingRequestsKeepsUp(t *testing.T) {
	w := newStory(t)
	var e Entry
	for i := range 500 {
		e.Commands = append(e.Commands, &Cancel{Header: Header{RequestID: string(rune('a' + i))}, Mode: muster.StopSave})
	}
	e.Stamp = 1
	w.s.Apply(e, 1, term)
	e.Stamp += muster.Time(RequestRetention.Milliseconds())
	w.s.Apply(Entry{Stamp: e.Stamp}, 2, term)
	if n := w.s.t.requests.len(); n != 500-expiryBatch {
		t.Errorf("an entry forgot %d requests at once", 500-n)
	}
	e.Commands = e.Commands[:300]
	w.s.Apply(Entry{Stamp: e.Stamp, Commands: e.Commands}, 3, term)
	if err := w.snapshot().CheckInvariants(); err != nil {
		t.Error(err)
	}
}

func TestARefusedRequestMayBeTriedAgain(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	big := &Submit{Header: Header{RequestID: "r-1"}, Specs: []*muster.JobSpec{gang("big", 2, 8)}}
	w.refuse(big, muster.KindInfeasible)
	w.register(machine("gpu-02", 8))
	w.do(big)
}

func TestSubmitAllOrNone(t *testing.T) {
	w := newStory(t)
	stranger := gang("b", 1, 0)
	stranger.Queue = "research/nlp"
	err := w.refuse(&Submit{Specs: []*muster.JobSpec{gang("a", 1, 0), stranger}}, muster.KindInvalid)
	if err.Field != "jobs[1].queue" || !strings.Contains(err.Message, "research/nlp") {
		t.Errorf("%+v", err)
	}
	w.refuse(&Submit{}, muster.KindInvalid)
	w.refuse(&Submit{Specs: []*muster.JobSpec{nil}}, muster.KindInvalid)
	w.refuse(&Submit{Specs: []*muster.JobSpec{gang("a", 0, 0)}}, muster.KindInvalid)
	w.refuse(&Submit{Specs: []*muster.JobSpec{gang("a", 1<<40, 0)}}, muster.KindInvalid)
	r := w.do(&Submit{Specs: []*muster.JobSpec{gang("a", 1, 0), gang("a", 1, 0)}, Name: "night"})
	if len(r.Jobs) != 2 || w.job(1).Name != "night" || w.s.t.specs.len() != 1 || w.s.t.shapes.len() != 1 {
		t.Errorf("%+v: %d specs, %d shapes", r, w.s.t.specs.len(), w.s.t.shapes.len())
	}
}

func TestWhatCanNeverFitIsRefusedWithTheNearestNode(t *testing.T) {
	small, large := machine("gpu-03", 4), machine("gpu-07", 8)
	small.Labels = []muster.Label{{Key: "rack", Value: "r1"}, {Key: "zone", Value: "eu-1"}}
	large.Labels = []muster.Label{{Key: "rack", Value: "r2"}}
	for i := range large.GPUs {
		large.GPUs[i].Memory = 96 * muster.GiB
	}
	spec := func(count int, r muster.Resources) *muster.JobSpec {
		s := gang("train", count, 0)
		s.Groups[0].Task.Resources = r
		return s
	}
	within := func(count, gpus int, domain string) *muster.JobSpec {
		s := gang("train", count, gpus)
		s.Groups[0].Within = domain
		return s
	}
	constrained := func(c muster.Constraint) *muster.JobSpec {
		s := gang("train", 1, 1)
		s.Groups[0].Constraints = []muster.Constraint{c}
		return s
	}
	two := gang("train", 1, 8)
	two.Groups = append(two.Groups, muster.Group{Name: "head", Count: 1, Task: muster.Task{Resources: muster.Resources{MilliCores: 65_000}}})
	for _, tc := range []struct {
		spec *muster.JobSpec
		want string // "" = fits
	}{
		{spec(1, muster.Resources{GPUs: 8}), ""},
		{spec(3, muster.Resources{GPUs: 4}), ""},
		{spec(128, muster.Resources{}), ""},
		{spec(2, muster.Resources{Exclusive: true}), ""},
		{within(2, 4, "node"), ""},
		{within(2, 4, "rack"), ""},
		{constrained(muster.Constraint{Attribute: "label.zone", Operator: "=", Value: "eu-1"}), ""},
		{spec(1, muster.Resources{GPUs: 16}), `job "train": no node has 16 GPUs: the largest, gpu-07, has 8`},
		{spec(1, muster.Resources{GPUs: 8, MinMemory: 80 * muster.GiB}), ""},
		{spec(1, muster.Resources{GPUs: 8, MinMemory: 141 * muster.GiB}), "no node has a GPU of 141GiB: the largest is on gpu-07 and has 96GiB"},
		{spec(2, muster.Resources{GPUs: 8, MinMemory: 96 * muster.GiB}), "all nodes together could hold 1 of its 2 ranks"},
		{spec(1, muster.Resources{GPUs: 1, Models: []string{"H200"}}), "no node has a GPU of model H200: the nearest, gpu-07, has NVIDIA H100 80GB HBM3"},
		{spec(1, muster.Resources{MilliCores: 65_000}), "no node has 65 cores: the largest, gpu-03, has 64"},
		{spec(1, muster.Resources{GPUs: 8, Memory: muster.TiB}), "no node with 8 GPUs has 1TiB of memory: the largest, gpu-07, has 512GiB"},
		{spec(4, muster.Resources{GPUs: 4}), "all nodes together could hold 3 of its 4 ranks"},
		{spec(3, muster.Resources{Exclusive: true}), "all nodes together could hold 2 of its 3 ranks"},
		{within(3, 4, "node"), "no node could hold all 3 ranks: the largest, gpu-07, could hold 2"},
		{within(3, 4, "rack"), "no rack could hold all 3 ranks: the largest, r2, could hold 2"},
		{within(1, 4, "row"), `no node has the label "row"`},
		{constrained(muster.Constraint{Attribute: "label.zone", Operator: "=", Value: "us-1"}),
			`on the nearest, gpu-03, label.zone = "us-1" does not hold: it has "eu-1"`},
		{two, `group "head": no node has 65 cores`},
	} {
		w := newStory(t)
		w.register(small, large)
		if tc.want == "" {
			w.submit(tc.spec)
			continue
		}
		err := w.refuse(&Submit{Specs: []*muster.JobSpec{tc.spec}}, muster.KindInfeasible)
		if !strings.Contains(err.Message, tc.want) || !strings.HasPrefix(err.Field, "jobs[0].groups[") {
			t.Errorf("got %q (%s)\nwant %q", err.Message, err.Field, tc.want)
		}
		w.do(&Submit{Specs: []*muster.JobSpec{tc.spec}, Pend: true})
	}
}

func TestFeasibilityLooksAtNodesWhateverTheirCondition(t *testing.T) {
	w := newStory(t)
	w.submit(gang("early", 99, 8)) // no node is known yet
	w.register(machine("gpu-01", 8))
	w.do(&FenceNode{Node: "gpu-01"})
	w.submit(gang("patient", 1, 8))
	w.refuse(&Submit{Specs: []*muster.JobSpec{gang("wide", 2, 8)}}, muster.KindInfeasible)
	w.register(machine("gpu-02", 0))
	w.refuse(&Submit{Specs: []*muster.JobSpec{gang("wide", 2, 8)}}, muster.KindInfeasible)
	w.register(machine("gpu-03", 8))
	w.submit(gang("wide", 2, 8))
}

func TestADutyOfAnotherTermIsRefused(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	id := w.submit(gang("x", 1, 1))
	for _, duty := range []Command{
		&CommitPlan{Term: term - 1, Gangs: []GangPlacement{w.plan(id, "gpu-01")}},
		&EndLeases{Term: term + 1, Node: 1, Session: "session-1", Lost: true},
		&Wake{Term: term - 1},
		&DrainDue{Term: term - 1, Node: 1},
		&Purge{Term: 0},
	} {
		w.refuse(duty, muster.KindConflict)
	}
	w.expect(id, muster.JobPending)
}

func TestInitClusterOnce(t *testing.T) {
	w := newStory(t)
	w.refuse(&InitCluster{}, muster.KindInvalid)
	w.do(&InitCluster{ClusterID: "c-1"})
	w.refuse(&InitCluster{ClusterID: "c-2"}, muster.KindConflict)
	if c := w.snapshot().Cluster(); c.ID != "c-1" || c.Epoch != 1 || c.Level != 1 {
		t.Errorf("%+v", c)
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	w := newStory(t)
	w.do(&InitCluster{ClusterID: "c"})
	at := w.snapshot().Cluster().Time
	w.now -= 5000
	w.do(&Wake{Term: term})
	if got := w.snapshot().Cluster().Time; got != at {
		t.Errorf("time went from %d to %d", at, got)
	}
}
