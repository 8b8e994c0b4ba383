package scheduler

import (
	"math"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// branch is a queue in the tree of a pass, with those below it.
type branch struct {
	name   string
	rules  *muster.QueueSpec
	path   []*branch // from the top to the branch itself
	weight float64
	quota  int64 // milli-GPUs, over all models
	held   int64 // milli-GPUs, by the queues below it too
	owed   int64 // GPU-milliseconds; see muster.Queue
	claim  int   // GPUs, as the state has it
	using  amounts
	share  float64 // see shareOf
}

// amounts is resources as they are weighed against each other.
type amounts struct{ gpus, cores, memory float64 } // milli-GPUs, milli-cores, state.MemoryUnit

func (a *amounts) add(b amounts, times float64) {
	a.gpus += b.gpus * times
	a.cores += b.cores * times
	a.memory += b.memory * times
}

// lookAhead is for how long what somebody holds, or is about to get, counts as used already. Without it a thousand jobs that start
// in one pass would count nothing.
const lookAhead = 10 * time.Minute

// tree is the queues of a pass as a tree, and what the cluster has.
type tree struct {
	branches map[string]*branch
	list     []*branch // by name, so that a parent comes before its children
	total    amounts   // what the cluster has, as use over a half-life
	half     float64   // milliseconds
	ahead    float64   // milliseconds
}

// grow makes the tree of a snapshot as it is at now.
func (v *View) tree(policy *muster.Policy, now muster.Time) *tree {
	t := &tree{branches: map[string]*branch{}, half: float64(max(policy.HalfLife, time.Minute).Milliseconds()),
		ahead: float64(lookAhead.Milliseconds())}
	for q := range v.snapshot.Queues() {
		t.branch(q.Name, q, now)
	}
	for _, q := range v.queues { // of jobs whose queue was removed meanwhile
		q.branch = t.branch(q.name, nil, now)
		for _, g := range q.branch.path {
			g.held += q.held
		}
	}
	for q := range v.snapshot.Queues() {
		g := t.branches[q.Name]
		g.claim, g.owed = q.Claim, q.OwedUntil(now, int(g.held/1000))
	}
	has := v.capacity()
	t.total = amounts{max(1, has.gpus) * t.half / math.Ln2, max(1, has.cores) * t.half / math.Ln2, max(1, has.memory) * t.half / math.Ln2}
	for u := range v.snapshot.Usage() {
		g := t.branches[u.Queue]
		if g == nil {
			continue
		}
		use := t.useOf(u, now)
		charge := float64(g.rules.Charge) / 1000
		for _, above := range g.path {
			above.using.add(use, charge)
		}
		if q := v.queueNamed(u.Queue); q != nil {
			q.user(u.User).using = use
		}
	}
	for _, g := range t.list {
		g.share = t.shareOf(&g.using) / g.weight
	}
	return t
}

// capacity is what all nodes have.
func (v *View) capacity() amounts {
	if v.countedVersion != v.nodesVersion {
		v.countedVersion, v.counted = v.nodesVersion, amounts{}
		for i := range v.nodes {
			n := v.nodes[i].row
			v.counted.add(amounts{float64(len(n.GPUs)) * 1000, float64(n.MilliCores), float64(n.Memory / state.MemoryUnit)}, 1)
		}
	}
	return v.counted
}

func (t *tree) branch(name string, row *muster.Queue, now muster.Time) *branch {
	if g := t.branches[name]; g != nil {
		return g
	}
	g := &branch{name: name}
	if parent := muster.ParentQueue(name); parent != "" {
		g.path = append(g.path, t.branch(parent, nil, now).path...)
	}
	g.path = append(g.path, g)
	if row == nil {
		row = &muster.Queue{Name: name}
	}
	g.rules = row.Rules()
	g.weight = float64(max(1, g.rules.Weight)) / 1000
	g.quota = int64(g.rules.QuotaGPUs()) * 1000
	t.branches[name] = g
	t.list = append(t.list, g)
	return g
}

// useOf is the decayed use of a row at a time, with what it holds counted ahead.
func (t *tree) useOf(u *state.UsageRow, now muster.Time) amounts {
	left := math.Exp2(-float64(max(0, now-u.Since)) / t.half)
	grown := (1-left)*t.half/math.Ln2 + t.ahead
	return amounts{
		float64(u.Used.GPUs)*left + float64(u.MilliGPUs)*grown,
		float64(u.Used.Cores)*left + float64(u.MilliCores)*grown,
		float64(u.Used.Memory)*left + float64(u.Memory/state.MemoryUnit)*grown,
	}
}

// shareOf is the dominant part of the cluster that some use is: who has held half of all GPUs for long, and little of anything
// else, has ½.
func (t *tree) shareOf(a *amounts) float64 {
	return max(a.gpus/t.total.gpus, a.cores/t.total.cores, a.memory/t.total.memory)
}

// start charges a placement in the pass at work.
func (t *tree) start(q *queue, u *user, gpus int64, need amounts) {
	times := t.ahead + float64(state.EntryPenalty.Milliseconds())
	charge := float64(q.branch.rules.Charge) / 1000
	for _, g := range q.branch.path {
		g.held += gpus
		g.using.add(need, times*charge)
		g.share = t.shareOf(&g.using) / g.weight
	}
	u.using.add(need, times)
	u.share = t.shareOf(&u.using)
}

// guaranteed says whether some quota above a job of a queue covers so much more.
func (g *branch) guaranteed(gpus int64) bool {
	for i := len(g.path) - 1; i >= 0; i-- {
		if at := g.path[i]; at.quota > 0 && at.held+gpus <= at.quota {
			return true
		}
	}
	return false
}

// compare orders two queues by their shares: the siblings above them decide that differ. 0: none do.
func (g *branch) compare(o *branch) int {
	for i := 0; i < len(g.path) && i < len(o.path); i++ {
		a, b := g.path[i], o.path[i]
		if a == b {
			continue
		}
		switch {
		case a.share < b.share:
			return -1
		case a.share > b.share:
			return 1
		}
		return 0
	}
	return 0
}
