package scheduler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// maxVictims bounds how many jobs one pass stops.
const maxVictims = 256

// longerFirst is how much more a victim is liked that has longer to go: the more, the fewer jobs are stopped, and the more GPUs idle
// while a large one is exchanged for a small one. At ½ there were a third more stops, for 1 % less mean completion time.
const longerFirst = 1.5

// stopCost is what a stop costs beside the work that is lost: the start again.
const stopCost = time.Minute

// evictions is what a pass knows of victims.
type evictions struct {
	byNode  map[int32][]onNode // running allocations
	chosen  map[*running]bool  // victims of this pass
	order   []*running         // the same, in order
	holds   []take             // for whom they are stopped
	taken   []take             // what of that is taken already
	since   muster.Time        // no earlier than this may a pass stop anything
	worst   float64            // the highest value of what runs and may be stopped by remaining time
	lowest  map[*queue]int     // priority of what may be stopped
	counted bool
}

// onNode is an allocation of a job that might be stopped.
type onNode struct {
	job *running
	holding
}

// preempts says whether the policy knows victims for a job at all.
func (a *agenda) preempts() bool { return a.policy.Preemption != muster.PreemptOff }

// survey lists what runs by node.
func (a *agenda) survey() {
	e := &a.evict
	if e.counted {
		return
	}
	e.counted, e.chosen, e.byNode, e.lowest = true, map[*running]bool{}, map[int32][]onNode{}, map[*queue]int{}
	for _, r := range a.v.running {
		if r.stopping() || a.immune(r) {
			continue
		}
		if low, ok := e.lowest[r.queue]; !ok || r.job.Priority < low {
			e.lowest[r.queue] = r.job.Priority
		}
		for _, h := range r.holds {
			e.byNode[h.node] = append(e.byNode[h.node], onNode{r, h})
		}
		if !a.entitled[r] {
			e.worst = max(e.worst, a.valueOf(r))
		}
	}
	if a.policy.Preemption == muster.PreemptShortest && a.policy.Round > 0 {
		if last := a.v.snapshot.Cluster().Preempted; last > 0 {
			e.since = last.Add(a.policy.Round)
		}
	}
}

// immune says whether a running job is never stopped for another: a wide gang that had waited its time is not made to wait again;
// one that has not run for its queue's min_runtime, or was preempted often enough today, is left alone.
func (a *agenda) immune(r *running) bool {
	placed := r.placed()
	gpus := r.gpus
	if a.policy.WideAfter > 0 && gpus > int64(a.policy.WideGPUs)*1000 &&
		r.past.waited+placed.Sub(r.past.since) >= a.policy.WideAfter {
		return true
	}
	if rules := r.queue.branch.rules; a.now.Sub(placed) < rules.MinRuntime {
		return true
	}
	if a.policy.MaxPreemptions > 0 {
		today := 0
		for i := range r.job.Attempts {
			if at := &r.job.Attempts[i]; at.Class == muster.ClassPreempted && a.now.Sub(at.Ended) < 24*time.Hour {
				today++
			}
		}
		return today >= a.policy.MaxPreemptions
	}
	return false
}

// mayStop says whether the policy lets a job that waits stop one that runs, and why in one word. The victim is not immune.
func (a *agenda) mayStop(h *head, r *running) (why string, ok bool) {
	q, u := h.bucket.key.user.queue, r.queue
	byTime := a.policy.Order == muster.OrderShortest && a.policy.Preemption == muster.PreemptShortest
	if q == u && !byTime { // by time priority counts for nothing: two orders at once would stop jobs in a circle

		if r.job.Priority > h.bucket.key.priority {
			return "", false
		}
		if r.job.Priority < h.bucket.key.priority {
			return "priority", true
		}
	}
	if byTime {
		switch {
		case h.tier == tierWide:
			return "wide", true
		case a.entitled[r]:
			return "", false
		case h.tier == tierOwed:
			return "quota", true
		}
		return "shortest", h.value < a.valueOf(r)
	}
	if q != u && a.quotas && q.branch.guaranteed(h.bucket.shape.gpuMilli) && u.branch.over(q.branch, r.gpus) {
		return "quota", true
	}
	return "", false
}

// over says whether a queue, and those above it that the other one is not below, keep their quotas when they lose so much.
func (g *branch) over(other *branch, gpus int64) bool {
	for i, at := range g.path {
		if i < len(other.path) && other.path[i] == at {
			continue
		}
		if at.held-gpus < at.quota {
			return false
		}
	}
	return true
}

// valueOf is a running job's place by remaining time.
func (a *agenda) valueOf(r *running) float64 {
	if r.valued != a.number {
		r.valued, r.value = a.number, a.value(r.job.User, r.gpus, r.limit(), a.ageOf(r), true)
	}
	return r.value
}

// costOf is what it costs to stop a job: the GPU time of work that is lost, or by remaining time the less the longer it has still
// to go.
func (a *agenda) costOf(r *running) float64 {
	if a.policy.Preemption == muster.PreemptShortest && a.policy.Order == muster.OrderShortest {
		return weightOf(r.gpus) / math.Pow(max(1, a.valueOf(r)), longerFirst)
	}
	gone := a.now.Sub(r.started(a.now))
	if r.spec != nil && saves(r.spec) {
		gone = min(gone, lost(r.spec, muster.ClassPreempted))
	}
	return (gone + stopCost).Seconds() * weightOf(r.gpus)
}

// offer is room for one more rank on a node, for the victims up to a position of the node's.
type offer struct {
	node    int32
	cost    float64 // more than the offer before it on the node
	victims []*running
}

// preempt finds the cheapest victims for a job, and plans to stop them. false: there are none, or they would not do.
func (a *agenda) preempt(h *head, job *muster.Job) bool {
	e := &a.evict
	s := h.bucket.shape
	a.survey()
	if len(e.order) >= maxVictims || s.noVictims == a.number && s.noVictimsOf == h.bucket.key.user.queue {
		return false
	}
	if !a.maybe(h) {
		return false
	}
	if e.since > a.now {
		a.wakeAt(e.since)
		return false
	}
	a.rankAgain()
	a.setLevel(0)
	mark := len(a.undo)
	ranks, victims, ok := a.makeRoom(h, s, a.mayBeWide(s, h.job, a.now))
	a.rollback(mark)
	if !ok && a.waitsForOne(h, s) {
		return false
	}
	if !ok {
		s.noVictims, s.noVictimsOf = a.number, h.bucket.key.user.queue
		return false
	}
	a.stopFor(h, job, ranks, victims)
	return true
}

// maybe says quickly that there can be no victims for a job.
func (a *agenda) maybe(h *head) bool {
	if a.policy.Order == muster.OrderShortest && a.policy.Preemption == muster.PreemptShortest {
		return h.tier < tierCommon || h.value < a.evict.worst
	}
	q := h.bucket.key.user.queue
	if low, ok := a.evict.lowest[q]; ok && low < h.bucket.key.priority {
		return true
	}
	return a.quotas && q.branch.guaranteed(h.bucket.shape.gpuMilli)
}

// makeRoom finds victims for a shape, and where it would go. What it releases and takes is for the caller to roll back.
func (a *agenda) makeRoom(h *head, s *shape, wide bool) ([]state.RankPlacement, []*running, bool) {
	a.future()
	sc := scope{out: a.out, wide: wide}
	if _, ok := a.choose(s, &sc); ok {
		return nil, nil, false // it has room as soon as those are gone that are going
	}
	victims, ok := a.victims(h, s, &sc)
	if !ok {
		return nil, nil, false
	}
	model, ok := a.choose(s, &sc)
	if !ok {
		return nil, nil, false
	}
	return a.commit(s, model, &sc), victims, true
}

// waitsForOne says whether a gang could have room if it would use several domains, and has patience still.
func (a *agenda) waitsForOne(h *head, s *shape) bool {
	if a.mayBeWide(s, h.job, a.now) {
		return false
	}
	if _, known := a.v.couldSince[h.job]; known {
		return true
	}
	mark := len(a.undo)
	_, _, ok := a.makeRoom(h, s, true)
	a.rollback(mark)
	if ok {
		a.couldSpread(s, h.job)
	}
	return ok
}

// future is how the nodes will be when all have left that are asked to, and those run that they are stopped for.
func (a *agenda) future() {
	for _, r := range a.v.running {
		if r.stopping() || a.evict.chosen[r] {
			a.giveAll(r)
		}
	}
	for i := range a.evict.holds {
		t := a.evict.holds[i]
		t.slots &= a.v.nodes[t.node].free
		t.shares = a.v.nodes[t.node].canShare(t.shares)
		a.change(&t, 1)
	}
}

func (a *agenda) giveAll(r *running) {
	for _, t := range r.takes() {
		a.change(&t, -1)
	}
}

// victims releases, one after the other, what makes room for a job at the least cost, and takes back what turned out not to be
// needed. What is left is released when it returns.
func (a *agenda) victims(h *head, s *shape, sc *scope) ([]*running, bool) {
	models := s.models
	if !s.gpus {
		models = []*lane{nil}
	}
	a.v.learn(s)
	for _, model := range models {
		mark := len(a.undo)
		victims, ok := a.victimsFor(h, s, model, sc)
		if ok {
			return a.spare(victims, s, sc, mark), true
		}
		a.rollback(mark)
	}
	return nil, false
}

// victimsFor does so with GPUs of one model.
func (a *agenda) victimsFor(h *head, s *shape, model *lane, sc *scope) ([]*running, bool) {
	var victims []*running
	stopped := map[*running]bool{}
	for _, k := range s.order {
		r := &s.requests[k]
		l := a.v.laneOf(r, model)
		offers := a.offers(h, r, l, sc, stopped)
		next := 0
		for {
			a.picks = a.picks[:0]
			if _, ok := a.place(r, l, sc); ok {
				break
			}
			if next == len(offers) {
				return nil, false
			}
			for _, v := range offers[next].victims {
				if !stopped[v] {
					stopped[v] = true
					victims = append(victims, v)
					a.giveAll(v)
				}
			}
			next++
		}
		if len(s.requests) > 1 {
			var slots []muster.SlotSet
			for _, at := range slices.Clone(a.picks) {
				slots = a.take(r, l, at, slots[:0])
			}
		}
	}
	return victims, true
}

// offers lists what ranks of a request could have on each node, the cheapest first.
func (a *agenda) offers(h *head, r *request, l *lane, sc *scope, stopped map[*running]bool) []offer {
	var offers []offer
	for i := range a.v.nodes {
		node := int32(i)
		on := a.evict.byNode[node]
		n := &a.v.nodes[i]
		if len(on) == 0 || !n.placeable || !a.eligible(node, r, sc) {
			continue
		}
		type candidate struct {
			onNode
			cost float64
		}
		var cands []candidate
		for _, c := range on {
			if a.evict.chosen[c.job] || stopped[c.job] {
				continue
			}
			if _, ok := a.mayStop(h, c.job); ok {
				cands = append(cands, candidate{c, a.costOf(c.job)})
			}
		}
		slices.SortStableFunc(cands, func(x, y candidate) int {
			return cmp.Or(cmp.Compare(x.cost/weightOf(gpusOf(x.alloc)), y.cost/weightOf(gpusOf(y.alloc))), cmp.Compare(x.job.job.ID, y.job.job.ID))
		})
		room := *n
		holds := r.capacity(room.room(), n.chassis, n.row, l)
		var victims []*running
		cost := 0.0
		for _, c := range cands {
			t := c.take()
			room.move(&t, -1, a.kept[node])
			if !slices.Contains(victims, c.job) {
				victims = append(victims, c.job)
				cost += c.cost
			}
			for now := r.capacity(room.room(), n.chassis, n.row, l); holds < now; holds++ {
				offers = append(offers, offer{node, cost, slices.Clone(victims)})
			}
		}
	}
	slices.SortStableFunc(offers, func(x, y offer) int { return cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(x.node, y.node)) })
	return offers
}

// spare takes victims back whose places are not needed, the dearest first, and releases the others.
func (a *agenda) spare(victims []*running, s *shape, sc *scope, mark int) []*running {
	slices.SortStableFunc(victims, func(x, y *running) int {
		return cmp.Or(cmp.Compare(a.costOf(y), a.costOf(x)), cmp.Compare(x.job.ID, y.job.ID))
	})
	for i := 0; i < len(victims) && len(victims) > 1; {
		rest := slices.Delete(slices.Clone(victims), i, i+1)
		a.rollback(mark)
		for _, v := range rest {
			a.giveAll(v)
		}
		if _, ok := a.choose(s, sc); ok {
			victims = rest
		} else {
			i++
		}
	}
	a.rollback(mark)
	for _, v := range victims {
		a.giveAll(v)
	}
	return victims
}

// stopFor plans the eviction.
func (a *agenda) stopFor(h *head, job *muster.Job, ranks []state.RankPlacement, victims []*running) {
	e := &a.evict
	out := state.Eviction{Job: job.ID, Attempt: job.Attempt + 1, Ranks: ranks}
	for _, v := range victims {
		why, _ := a.mayStop(h, v)
		out.Victims = append(out.Victims, state.Victim{Job: v.job.ID, Attempt: v.job.Attempt, Reason: reasonFor(why, job, h)})
	}
	for _, v := range victims {
		e.chosen[v] = true
		e.order = append(e.order, v)
		for _, g := range v.queue.branch.path {
			g.held -= v.gpus
		}
	}
	a.plan.Evictions = append(a.plan.Evictions, out)
	a.tree.start(h.bucket.key.user.queue, h.bucket.key.user, h.bucket.shape.gpuMilli, h.bucket.shape.need)
	for _, t := range a.v.takesOf(ranks) {
		e.holds = append(e.holds, t)
		a.kept[t.node] |= t.slots
		t.slots &= a.v.nodes[t.node].free
		n := &a.v.nodes[t.node]
		t.shares = n.canShare(t.shares)
		t.cores, t.memory = max(0, min(t.cores, n.cores)), max(0, min(t.memory, n.memory))
		a.change(&t, 1)
		e.taken = append(e.taken, t)
	}
}

func reasonFor(why string, job *muster.Job, h *head) string {
	who := fmt.Sprintf("%s (%d of %s)", job.Name, job.ID, job.User)
	switch why {
	case "priority":
		return fmt.Sprintf("preempted for %s, of priority %d", who, job.Priority)
	case "quota":
		return fmt.Sprintf("preempted for %s: queue %s has a right to these GPUs by its quota", who, job.Queue)
	case "wide":
		return fmt.Sprintf("preempted for %s, a gang of %d GPUs that has waited too long", who, h.bucket.shape.gpuMilli/1000)
	}
	return fmt.Sprintf("preempted for %s, which is expected to be done much sooner", who)
}
