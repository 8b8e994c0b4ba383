package scheduler

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"pgregory.net/rapid"
)

// Random clusters live a random life. After each entry the view that followed equals a fresh one; each plan is legal by a
// dumb reckoning, and the state takes all of it; what was left waiting could not have started.
func TestALifeOfACluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		life := &life{world: w, t: t}
		for range rapid.IntRange(1, 4).Draw(t, "nodes") {
			life.register()
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			rapid.SampledFrom([]func(){life.submit, life.submit, life.submit, life.pass, life.pass, life.end, life.end, life.cancel,
				life.register, life.drain, life.fence}).Draw(t, "step")()
			life.followedWell()
		}
		life.pass()
		life.followedWell()
	})
}

type life struct {
	*world
	t     *rapid.T
	names []string
	jobs  []muster.JobID
}

var models = []string{"H100", "A100", "L40S"}

// register brings a new node, or a known one with other labels, GPUs or health.
func (l *life) register() {
	name := fmt.Sprintf("n%d", rapid.IntRange(1, 7).Draw(l.t, "node"))
	gpus := fmt.Sprintf("%s*%d", rapid.SampledFrom(models).Draw(l.t, "model"), rapid.IntRange(0, 8).Draw(l.t, "gpus"))
	if rapid.IntRange(0, 3).Draw(l.t, "mixed") == 0 {
		gpus += fmt.Sprintf(" %s*%d", rapid.SampledFrom(models).Draw(l.t, "model"), rapid.IntRange(1, 4).Draw(l.t, "gpus"))
	}
	health := rapid.SliceOfN(rapid.IntRange(0, 9), 12, 12).Draw(l.t, "health")
	edit := func(m *muster.Node) {
		m.MilliCores = muster.MilliCores(rapid.SampledFrom([]int{4000, 16000, 64000}).Draw(l.t, "cores"))
		m.Memory = muster.Bytes(rapid.SampledFrom([]int{16, 64, 512}).Draw(l.t, "memory")) * muster.GiB
		if rack := rapid.IntRange(0, 2).Draw(l.t, "rack"); rack > 0 {
			label("rack", fmt.Sprintf("r%d", rack))(m)
		}
		for i := range m.GPUs {
			m.GPUs[i].Memory = muster.Bytes(rapid.SampledFrom([]int{40, 80}).Draw(l.t, "card")) * muster.GiB
			switch health[i] {
			case 0:
				m.GPUs[i].Health = muster.GPUQuarantined
			case 1:
				m.GPUs[i].Health = muster.GPUDegraded
			}
		}
	}
	l.names = append(l.names, name)
	l.registerAnyway(name, gpus, edit)
}

// registerAnyway registers a node as it is after a restart of its machine; what ran there has ended.
func (l *life) registerAnyway(name, gpus string, edit func(*muster.Node)) {
	n := machine(name, gpus)
	n.Boot, n.Session = fmt.Sprintf("boot-%d", l.index), fmt.Sprintf("session-%d", l.index)
	n.Instance = n.Session
	edit(&n)
	l.applyAnyway(&state.RegisterNode{Node: n, Seen: l.snap.Version()})
}

func (l *life) submit() {
	s := spec()
	s.Priority = rapid.SampledFrom([]int{10, 50, 90}).Draw(l.t, "priority")
	if rapid.IntRange(0, 4).Draw(l.t, "two") == 0 {
		s.Groups = append(s.Groups, group("other", 1))
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		g.Count = rapid.SampledFrom([]int{1, 1, 2, 3, 6}).Draw(l.t, "ranks")
		g.Within = rapid.SampledFrom([]string{"", "", "", "node", "rack"}).Draw(l.t, "within")
		r := &g.Task.Resources
		r.GPUs = rapid.SampledFrom([]int{0, 1, 1, 2, 3, 4, 8}).Draw(l.t, "gpus")
		r.MilliCores = muster.MilliCores(rapid.SampledFrom([]int{0, 0, 500, 3000, 16000}).Draw(l.t, "cores"))
		r.Memory = muster.Bytes(rapid.SampledFrom([]int{0, 0, 1, 10, 64}).Draw(l.t, "memory")) * muster.GiB
		r.Exclusive = rapid.IntRange(0, 7).Draw(l.t, "exclusive") == 0
		if r.GPUs == 1 && rapid.Bool().Draw(l.t, "share") {
			r.Share = muster.MilliGPUs(rapid.SampledFrom([]int{200, 350, 470, 500, 800}).Draw(l.t, "of a GPU"))
		}
		if r.GPUs > 0 {
			r.Models = rapid.SampledFrom([][]string{nil, nil, {"H100"}, {"A100", "L40S"}}).Draw(l.t, "models")
			r.MinMemory = muster.Bytes(rapid.SampledFrom([]int{0, 0, 80}).Draw(l.t, "card")) * muster.GiB
		}
		if rapid.IntRange(0, 4).Draw(l.t, "rule") == 0 {
			g.Constraints = []muster.Constraint{{Attribute: "label.rack", Operator: muster.OpNotEqual, Value: "r1"}}
		}
	}
	s.FillDefaults()
	user := rapid.SampledFrom([]string{"ann", "bob"}).Draw(l.t, "user")
	l.jobs = append(l.jobs, l.submitSpec(user, s))
}

func (l *life) anyJob(phase func(muster.JobPhase) bool) (muster.JobID, bool) {
	var of []muster.JobID
	for _, id := range l.jobs {
		if j, ok := l.snap.Job(id); ok && phase(j.Phase) {
			of = append(of, id)
		}
	}
	if len(of) == 0 {
		return 0, false
	}
	return rapid.SampledFrom(of).Draw(l.t, "job"), true
}

func (l *life) end() {
	if id, ok := l.anyJob(muster.JobPhase.Placed); ok {
		classes := []muster.Class{muster.ClassExit, muster.ClassNode, muster.ClassPrepare}
		l.world.end(id, rapid.SampledFrom(classes).Draw(l.t, "class"), 0)
	}
}

func (l *life) cancel() {
	if id, ok := l.anyJob(func(p muster.JobPhase) bool { return !p.Terminal() }); ok {
		l.apply(&state.Cancel{Header: state.Header{User: "ann"}, Jobs: []muster.JobID{id}, Mode: muster.StopKill})
	}
}

func (l *life) drain() {
	name := rapid.SampledFrom(l.names).Draw(l.t, "name")
	if rapid.Bool().Draw(l.t, "drain") {
		l.applyAnyway(&state.DrainNodes{Nodes: []string{name}, Reason: "fan"})
	} else {
		l.applyAnyway(&state.UndrainNodes{Nodes: []string{name}})
	}
}

func (l *life) fence() {
	l.applyAnyway(&state.FenceNode{Node: rapid.SampledFrom(l.names).Draw(l.t, "name")})
}

// pass schedules until nothing more starts.
func (l *life) pass() {
	signals := Signals{Suspect: map[muster.NodeID]string{}, Load: map[muster.NodeID]int64{}}
	for n := range l.snap.Nodes() {
		if rapid.IntRange(0, 9).Draw(l.t, "suspect") == 0 {
			signals.Suspect[n.ID] = "silent"
		}
		if rapid.Bool().Draw(l.t, "loaded") {
			signals.Load[n.ID] = rapid.Int64Range(0, 2).Draw(l.t, "load")
		}
	}
	for {
		plan := Schedule(l.view, signals, 0)
		before := picture(l.view)
		if again := Schedule(l.view, signals, 0); !reflect.DeepEqual(plan, again) {
			l.t.Fatalf("a second pass over the same view decides otherwise:\n%+v\n%+v", plan, again)
		}
		if after := picture(l.view); after != before {
			l.t.Fatalf("a pass left its traces:\n%s\n%s", before, after)
		}
		fresh := NewView(l.snap)
		disorder(fresh)
		if other := Schedule(fresh, signals, 0); !reflect.DeepEqual(plan, other) {
			l.t.Fatalf("a fresh view in another order decides otherwise:\n%+v\n%+v", plan, other)
		}
		if len(plan.Gangs) == 0 {
			break
		}
		l.legal(plan, signals)
		l.commit(plan)
		l.followedWell()
		if plan.More {
			continue
		}
		again := Schedule(l.view, signals, 0)
		for _, gang := range again.Gangs { // unequal groups are placed greedily: what others took may have led to a better try
			if job, _ := l.snap.Job(gang.Job); len(l.snap.Spec(job.Spec).Groups) == 1 {
				l.t.Fatalf("a pass right after a whole one starts more: %+v", again)
			}
		}
		if len(again.Gangs) == 0 {
			break
		}
	}
	for _, id := range l.jobs {
		l.rightlyWaits(id, signals)
	}
}

func (l *life) followedWell() {
	if got, want := picture(l.view), picture(NewView(l.snap)); got != want {
		l.t.Fatalf("the view that followed is not the fresh one. Followed:\n%s\nFresh:\n%s", got, want)
	}
	if err := l.snap.CheckInvariants(); err != nil {
		l.t.Fatalf("%v", err)
	}
}

// disorder turns round what has no order.
func disorder(v *View) {
	for _, l := range append([]*lane{v.cpu}, v.lanes...) {
		for i := range l.levels {
			slices.Reverse(l.levels[i].classes)
			for k, c := range l.levels[i].classes {
				*c.position(l) = int32(k)
			}
		}
	}
	for _, q := range v.queues {
		slices.Reverse(q.buckets)
		for k, b := range q.buckets {
			b.at = k
		}
	}
}

// picture writes all that a view holds, in an order of its own.
func picture(v *View) string {
	var b strings.Builder
	for _, q := range v.queues {
		var lines []string
		total := 0
		for _, bucket := range q.buckets {
			line := fmt.Sprintf("%s %d shape %d: %v\n", q.name, bucket.key.priority, bucket.shape.id, bucket.jobs.all())
			lines = append(lines, line)
			total += bucket.jobs.len
		}
		slices.Sort(lines)
		if q.pending > 0 {
			fmt.Fprintf(&b, "%s%s has %d = %d\n", strings.Join(lines, ""), q.name, q.pending, total)
		}
	}
	for i := range v.nodes {
		n := &v.nodes[i]
		fmt.Fprintf(&b, "node %d %p %v usable %s free %s shared %v %d %d %d gpus %d\n", n.row.ID, n.row, n.placeable, n.usable, n.free,
			n.shared, n.cores, n.memory, n.allocs, n.chassis.gpus)
	}
	var lines []string
	for key, c := range v.classes {
		lines = append(lines, fmt.Sprintf("class %v %d %d %+v of %d GPUs\n", c.nodes, key.totalCores, key.totalMemory,
			key.room, key.chassis.gpus))
	}
	for _, l := range append([]*lane{v.cpu}, v.lanes...) {
		for i := range l.levels {
			cores, memory := l.levels[i].bounds()
			var listed []int32
			for _, c := range l.levels[i].classes {
				listed = append(listed, c.nodes...)
			}
			slices.Sort(listed)
			if set := slices.Collect(l.levels[i].nodes.all); !slices.Equal(listed, set) {
				line := fmt.Sprintf("lane %q level %d: classes have %v, the set has %v\n", l.model, i, listed, set)
				lines = append(lines, line)
			}
			for k, c := range l.levels[i].classes {
				if int(*c.position(l)) != k {
					lines = append(lines, "a class is not where it thinks it is\n")
				}
				lines = append(lines, fmt.Sprintf("lane %q level %d: %v, %d in all, up to level %d, bounds %d %d\n", l.model, i,
					c.nodes, l.free, l.highLv, cores, memory))
			}
		}
	}
	for key, r := range v.rules {
		held := ""
		for i := range v.nodes {
			held += fmt.Sprint(r.holds.has(int32(i)))
		}
		lines = append(lines, fmt.Sprintf("rule %q of %d: %s\n", key, r.users, held))
	}
	lines = append(lines, fmt.Sprintf("%d shapes\n", len(v.shapes)))
	v.refreshMix()
	lines = append(lines, fmt.Sprintf("mix %v %v %d %d %d; %v %v\n", v.mix.shares, v.mix.models, v.mix.asked, v.mix.cores, v.mix.plain,
		v.mix.pack, v.mix.kappa), fmt.Sprintf("%d GPUs with %d cores\n", v.gpus, v.gpuCores))
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
	return b.String()
}

// rightlyWaits tries a pending job by hand on what is free now, and compares its explanation.
func (l *life) rightlyWaits(id muster.JobID, signals Signals) {
	job, ok := l.snap.Job(id)
	if !ok || !l.snap.IsPending(pendingKey(job)) {
		return
	}
	e, _ := l.view.Explain(id, signals, 0)
	if e.Position < 1 || e.Position > e.Of || e.AheadCount != e.Position-1 || len(e.Ahead) != min(MaxAhead, e.AheadCount) ||
		e.Headline == "" {
		l.t.Fatalf("job %d stands nowhere: %s", id, tell(e))
	}
	spec := l.snap.Spec(job.Spec)
	if len(spec.Groups) > 1 {
		return // placed greedily: legal, but not always found
	}
	g := &spec.Groups[0]
	domains := []string{""}
	switch g.Within {
	case "node":
		domains = l.names
	case "rack":
		domains = []string{"r1", "r2"}
	}
	for _, domain := range domains {
		for _, model := range models {
			found := 0
			for _, d := range l.clerk(signals) {
				rack, _ := d.row.Label("rack")
				if g.Within == "node" && d.row.Name != domain || g.Within == "rack" && rack != domain {
					continue
				}
				for found < g.Count && d.gives(g, "NVIDIA "+model+" 80GB") {
					found++
				}
			}
			if found >= g.Count {
				l.t.Fatalf("job %d waits, though %d ranks fit on %s in %q: %s", id, found, model, domain, tell(e))
			}
		}
	}
	counted := 0
	for _, r := range e.Reasons {
		counted += r.Count
	}
	fits := 0
	for _, d := range l.clerk(signals) {
		for _, model := range models {
			one, ranks := *d, 0
			for ranks < g.Count && one.gives(g, "NVIDIA "+model+" 80GB") {
				ranks++
			}
			if ranks == g.Count || ranks > 0 && g.Within != "node" {
				fits++
				break
			}
		}
	}
	if counted+fits != len(l.view.nodes) {
		l.t.Fatalf("job %d: %d nodes are said not to do and %d do, of %d: %s", id, counted, fits, len(l.view.nodes), tell(e))
	}
}
