package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// take is what a job has, or will have, of a node.
type take struct {
	node   int32
	slots  muster.SlotSet // whole
	shares []muster.SlotShare
	cores  muster.MilliCores
	memory muster.Bytes
	allocs int
}

// change takes from a node, or with sign -1 gives back. A rollback undoes it.
func (p *pass) change(t *take, sign int) {
	n := &p.v.nodes[t.node]
	p.undo = append(p.undo, undo{t.node, n.free, n.shared, n.cores, n.memory, n.allocs})
	n.move(t, sign, p.kept[t.node])
	p.v.enroll(t.node)
}

// move takes from what a node has, or with sign -1 gives back, without what is kept for somebody. Its class stays.
func (n *node) move(t *take, sign int, kept muster.SlotSet) {
	if sign > 0 {
		n.free = n.free.Minus(t.slots)
	} else {
		n.free |= t.slots & n.usable &^ kept
	}
	for _, s := range t.shares {
		n.share(s.Slot, s.Held*muster.MilliGPUs(sign))
	}
	n.cores -= t.cores * muster.MilliCores(sign)
	n.memory -= t.memory * muster.Bytes(sign)
	n.allocs += t.allocs * sign
}

// share takes a share of a slot, or gives it back. Nothing is taken of a GPU that somebody has whole.
func (n *node) share(slot int, share muster.MilliGPUs) {
	held, one := muster.HeldShare(n.shared, slot), muster.SlotSet(0).With(slot)
	if held == 0 && (share < 0 || !n.free.Has(slot)) {
		return
	}
	n.shared = muster.AddShare(n.shared, slot, max(share, -held))
	if held+share > 0 {
		n.free = n.free.Minus(one)
	} else {
		n.free |= one & n.usable
	}
}

// takesOf is what a placement takes, node by node.
func (v *View) takesOf(ranks []state.RankPlacement) []take {
	var takes []take
	for i := range ranks {
		r := &ranks[i]
		node, ok := v.find(r.Node)
		if !ok {
			continue
		}
		at := slices.IndexFunc(takes, func(t take) bool { return t.node == node })
		if at < 0 {
			at = len(takes)
			takes = append(takes, take{node: node})
		}
		t := &takes[at]
		t.add(r.Slots, r.Share)
		t.cores += r.MilliCores
		t.memory += r.Memory
		t.allocs++
	}
	return takes
}

// add adds a rank's GPUs.
func (t *take) add(slots muster.SlotSet, share muster.MilliGPUs) {
	if share == 0 {
		t.slots |= slots
		return
	}
	for _, slot := range slots.Slots() {
		t.shares = append(t.shares, muster.SlotShare{Slot: slot, Held: share})
	}
}

// takes is what a running job has, allocation by allocation.
func (r *running) takes() []take {
	out := make([]take, len(r.holds))
	for i, h := range r.holds {
		out[i] = h.take()
	}
	return out
}

func (h *holding) take() take {
	t := take{node: h.node, cores: h.alloc.MilliCores, memory: h.alloc.Memory, allocs: 1}
	t.add(h.alloc.Slots, h.alloc.Share)
	return t
}

// release is when something is expected to be free again.
type release struct {
	at     muster.Time
	number muster.JobID
	job    *running // or
	takes  []take   // of what starts in this pass
}

// compare orders releases by time, then by the job's number.
func (r release) compare(o release) int {
	switch {
	case r.at != o.at:
		return cmp.Compare(r.at, o.at)
	case r.number != o.number:
		return cmp.Compare(r.number, o.number)
	}
	return 0
}

func (r *release) all() []take {
	if r.job != nil {
		return r.job.takes()
	}
	return r.takes
}

// releases is what is expected to become free, the soonest first.
func (a *agenda) releases() []release {
	if !a.timed {
		a.timed = true
		for _, r := range a.v.running {
			a.timeline = append(a.timeline, release{at: a.endOf(r), number: r.job.ID, job: r})
		}
		slices.SortFunc(a.timeline, release.compare)
	}
	return a.timeline
}

// addRelease notes when what starts in this pass is expected to end.
func (a *agenda) addRelease(at muster.Time, job muster.JobID, placed []state.RankPlacement) {
	r := release{at: at, number: job, takes: a.v.takesOf(placed)}
	if !a.timed {
		a.timeline = append(a.timeline, r)
		return
	}
	i, _ := slices.BinarySearchFunc(a.timeline, r, release.compare)
	a.timeline = slices.Insert(a.timeline, i, r)
}

// reservation is a planned start.
type reservation struct {
	job        muster.JobID
	start, end muster.Time
	whole      []take // what it will have
	now        []take // what of that is free now: who still runs at its start may not have it
	applied    []take // what of now is taken at present
}

// levelOf is how many reservations begin before a time: whoever ends later must leave them what they need.
func (a *agenda) levelOf(end muster.Time) int {
	at, _ := slices.BinarySearchFunc(a.reservations, end, func(r reservation, end muster.Time) int {
		if r.start < end {
			return -1
		}
		return 1
	})
	return at
}

// setLevel takes what the first so many reservations need out of what is free, and puts back what the others need.
func (a *agenda) setLevel(level int) {
	for ; a.level > level; a.level-- {
		r := &a.reservations[a.level-1]
		for i := range r.applied {
			a.change(&r.applied[i], -1)
		}
		r.applied = r.applied[:0]
	}
	for ; a.level < level; a.level++ {
		r := &a.reservations[a.level]
		for i := range r.now {
			t := r.now[i]
			n := &a.v.nodes[t.node]
			t.slots &= n.free
			t.shares = n.canShare(t.shares)
			t.cores, t.memory = max(0, min(t.cores, n.cores)), max(0, min(t.memory, n.memory))
			r.applied = append(r.applied, t)
			a.change(&t, 1)
		}
	}
}

// reserve plans the start of a job: the earliest time at which what runs, and what is planned before it, leave it room. false: it
// would have none though all ended.
func (a *agenda) reserve(s *shape, job *muster.Job, lasts time.Duration) bool {
	a.setLevel(0)
	mark := len(a.undo)
	releases := a.releases()
	ends := make([]muster.Time, 0, len(a.reservations))
	for i := range a.reservations {
		ends = append(ends, a.reservations[i].end)
	}
	slices.Sort(ends)
	sc := scope{out: a.out}
	for i, k := 0, 0; i < len(releases) || k < len(ends); {
		var at muster.Time
		if i < len(releases) && (k == len(ends) || releases[i].at <= ends[k]) {
			at = releases[i].at
		} else {
			at = ends[k]
		}
		for ; i < len(releases) && releases[i].at == at; i++ {
			takes := releases[i].all()
			for t := range takes {
				a.change(&takes[t], -1)
			}
		}
		for ; k < len(ends) && ends[k] == at; k++ {
		}
		if !a.couldHold(s) {
			continue
		}
		before := len(a.undo)
		a.takePlanned(at, at.Add(lasts))
		sc.wide = a.mayBeWide(s, job.ID, at)
		if model, ok := a.choose(s, &sc); ok {
			ranks := a.commit(s, model, &sc)
			a.planned(job, at, at.Add(lasts), ranks, mark)
			return true
		}
		a.rollback(before)
	}
	a.rollback(mark)
	return false
}

// takePlanned takes what reservations have within a time.
func (a *agenda) takePlanned(from, to muster.Time) {
	for i := range a.reservations {
		r := &a.reservations[i]
		if r.start >= to || r.end <= from {
			continue
		}
		for _, t := range r.whole {
			n := &a.v.nodes[t.node]
			t.slots &= n.free
			t.shares = n.canShare(t.shares)
			t.cores, t.memory = max(0, min(t.cores, n.cores)), max(0, min(t.memory, n.memory))
			a.change(&t, 1)
		}
	}
}

// canShare is those of some shares for which there is room now.
func (n *node) canShare(shares []muster.SlotShare) []muster.SlotShare {
	var fit []muster.SlotShare
	for _, s := range shares {
		held := muster.HeldShare(n.shared, s.Slot)
		if n.usable.Has(s.Slot) && (n.free.Has(s.Slot) || held > 0 && held+s.Held <= muster.WholeGPU) {
			fit = append(fit, s)
		}
	}
	return fit
}

// planned writes a planned start down. The nodes are as they will be then, the ranks taken; mark is how they are now.
func (a *agenda) planned(job *muster.Job, start, end muster.Time, ranks []state.RankPlacement, mark int) {
	r := reservation{job: job.ID, start: start, end: end, whole: a.v.takesOf(ranks)}
	then := make([]take, len(r.whole)) // what will be free
	for i, t := range r.whole {
		n := &a.v.nodes[t.node]
		then[i] = take{node: t.node, slots: n.free | t.slots, cores: n.cores + t.cores, memory: n.memory + t.memory}
	}
	a.rollback(mark)
	for i, t := range r.whole {
		n := &a.v.nodes[t.node]
		keep := take{node: t.node, allocs: t.allocs}
		for _, p := range n.chassis.parts { // of equal devices it may have those that become free: the fewest of those that are
			later := then[i].slots &^ n.free & p.slots
			if need := (t.slots & p.slots).Count() - later.Count(); need > 0 {
				free := then[i].slots & n.free & p.slots
				own := (t.slots & free).Lowest(need)
				keep.slots |= own | free.Minus(own).Lowest(need-own.Count())
			}
		}
		keep.shares = n.canShare(t.shares)
		keep.cores = max(0, t.cores-max(0, then[i].cores-n.cores))
		keep.memory = max(0, t.memory-max(0, then[i].memory-n.memory))
		if keep.slots != 0 || len(keep.shares) > 0 || keep.cores > 0 || keep.memory > 0 {
			r.now = append(r.now, keep)
		}
	}
	at := a.levelOf(start)
	for at < len(a.reservations) && a.reservations[at].start == start {
		at++
	}
	a.reservations = slices.Insert(a.reservations, at, r)
}

// couldHold says quickly that there is no room for a shape: too few GPUs of any model are free.
func (a *agenda) couldHold(s *shape) bool {
	if !s.gpus {
		return true
	}
	need := 0
	for i := range s.requests {
		if s.requests[i].share == 0 {
			need += s.requests[i].gpus * s.requests[i].count
		}
	}
	a.v.learn(s)
	for _, l := range s.models {
		if l.free >= need {
			return true
		}
	}
	return false
}

// runnable says whether the nodes that may get work now could hold a shape if nothing ran. Who is not runnable gets no planned
// start, and delays nobody.
func (a *agenda) runnable(s *shape) bool {
	v := a.v
	if s.judged != v.nodesVersion {
		a.setLevel(0)
		mark := len(a.undo)
		kept := a.kept
		a.kept = nil // all is given back: what is held, and what this pass has taken, too
		for _, r := range a.v.running {
			takes := r.takes()
			for t := range takes {
				a.change(&takes[t], -1)
			}
		}
		for i := range a.timeline {
			if a.timeline[i].job == nil {
				for t := range a.timeline[i].takes {
					a.change(&a.timeline[i].takes[t], -1)
				}
			}
		}
		for i := range a.holds {
			for t := range a.holds[i].takes {
				a.change(&a.holds[i].takes[t], -1)
			}
		}
		for i := range a.evict.taken {
			a.change(&a.evict.taken[i], -1)
		}
		for _, q := range v.queues {
			for _, b := range q.buckets {
				if b.shape.judged != v.nodesVersion {
					b.shape.judged = v.nodesVersion
					_, b.shape.runs = a.choose(b.shape, &scope{wide: true})
					if b.shape.wishes() {
						_, b.shape.narrow = a.choose(b.shape, &scope{})
					}
				}
			}
		}
		a.rollback(mark)
		a.kept = kept
	}
	return s.runs
}
