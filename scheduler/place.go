package scheduler

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster"
)

// pass is one pass's working state over a view. What it takes it notes, so that the view can be put back as it was.
type pass struct {
	v       *View
	number  uint64
	out     nodeSet // suspect
	loads   map[muster.NodeID]int64
	load    []loadSeen // by node: looking all of them up would cost more than most passes
	undo    []undo
	cands   []candidate
	sorted  []int32
	picks   []pick
	scratch []int32                  // nodes of narrowed candidates
	kept    map[int32]muster.SlotSet // held for jobs that wait, by node: they become free for nobody else
}

type loadSeen struct {
	pass uint64
	load int64
}

// tieWindow bounds among how many nodes of a kind that fit equally well, the first by number, the least loaded is looked for.
const tieWindow = 64

// fewClasses is up to how many classes of a level are walked, and not its nodes.
const fewClasses = 32

// undo is what a node had before something was taken.
type undo struct {
	node   int32
	free   muster.SlotSet
	shared []muster.SlotShare
	cores  muster.MilliCores
	memory muster.Bytes
	allocs int
}

// pick puts ranks of a request on a node.
type pick struct {
	node  int32
	ranks int
}

// tightness orders the nodes that could take ranks: the least is the tightest fit. Free GPUs come first, since they are what
// must not be broken up: work without GPUs goes where none are free, or to the machines that have the fewest. For ranks with
// GPUs the rest is zero, and equal nodes are told apart by load, then number.
type tightness struct {
	free   int // GPUs of the model; without GPUs, of the node
	total  int // GPUs of the node
	cores  muster.MilliCores
	memory muster.Bytes
}

func (a tightness) compare(b tightness) int {
	if c := cmp.Compare(a.free, b.free); c != 0 {
		return c
	}
	if c := cmp.Compare(a.total, b.total); c != 0 {
		return c
	}
	if c := cmp.Compare(a.cores, b.cores); c != 0 {
		return c
	}
	return cmp.Compare(a.memory, b.memory)
}

// candidate is nodes of one class, or a single node, with how many ranks each of them holds.
type candidate struct {
	class    *class
	nodes    []int32
	capacity int
	tight    tightness
}

func (r *request) tightness(c *class, l *lane) tightness {
	if r.gpus > 0 {
		return tightness{free: (c.key.room.free & c.key.chassis.slotsOf(l)).Count()}
	}
	return tightness{c.key.room.free.Count(), c.key.chassis.gpus, c.key.room.cores, c.key.room.memory}
}

// cost says how good a placement of a whole gang is: the least is best.
type cost struct {
	nodes int   // used
	loss  int   // in lossSteps; of a gang on one node
	node  int32 // the one with a loss
	left  int   // free GPUs left on them
}

// place finds nodes for all ranks of a request, with GPUs of the lane's model: the smallest set of nodes, and of equal sets
// the tightest. Nothing is taken. The picks are appended to p.picks, by node.
func (p *pass) place(r *request, l *lane, sc *scope) (cost, bool) {
	if r.count == 0 {
		return cost{}, true
	}
	if r.share == 0 && r.gpus > 0 && (l.free < r.gpus*r.count || l.highLv < r.gpus) {
		return cost{}, false
	}
	if p.v.mix.told {
		if i, loss, ok := p.cheapest(r, l, sc); ok {
			p.picks = append(p.picks, pick{i, r.count})
			return cost{nodes: 1, loss: loss, node: i}, true
		}
	} else if i, tight, ok := p.one(r, l, sc); ok {
		p.picks = append(p.picks, pick{i, r.count})
		return cost{nodes: 1, left: tight.free - r.gpus*r.count}, true
	}
	switch {
	case r.count == 1 || r.within == "node":
		return cost{}, false
	case r.wishes():
		return p.inOne(r, l, sc)
	case r.within != "":
		return p.inDomain(r, r.within, l, sc)
	}
	p.gather(r, l, sc)
	return p.fill(r)
}

// one finds the tightest node that takes all ranks.
func (p *pass) one(r *request, l *lane, sc *scope) (int32, tightness, bool) {
	var best tightness
	node := int32(-1)
	for free := r.gpus * r.count; free <= l.highLv; free++ {
		lv := &l.levels[free]
		if len(lv.classes) == 0 {
			continue
		}
		if cores, memory := lv.bounds(); cores < r.cores || memory < r.memory {
			continue
		}
		if r.gpus > 0 && len(lv.classes) > fewClasses { // all nodes of the level are equally tight
			if i := p.firstOf(lv, r, l, sc); i >= 0 {
				return i, tightness{free: free}, true
			}
			continue
		}
		for _, c := range lv.classes {
			if r.capacity(c.key.room, c.key.chassis, c.row, l) < r.count {
				continue
			}
			tight := r.tightness(c, l)
			if node >= 0 && tight.compare(best) > 0 {
				continue
			}
			i := p.least(c.nodes, r, sc)
			if i >= 0 && (node < 0 || tight.compare(best) < 0 || p.prefer(i, node)) {
				best, node = tight, i
			}
		}
		if node >= 0 { // what is looser by free GPUs is not better by anything else
			break
		}
	}
	return node, best, node >= 0
}

// firstOf is the preferred node of a level that takes all ranks, -1 when none does.
func (p *pass) firstOf(lv *level, r *request, l *lane, sc *scope) int32 {
	best, seen := int32(-1), 0
	for i := range lv.nodes.all {
		c := p.v.nodes[i].class
		if r.capacity(c.key.room, c.key.chassis, c.row, l) < r.count || !p.eligible(i, r, sc) {
			continue
		}
		if best < 0 || p.prefer(i, best) {
			best = i
		}
		if seen++; seen == tieWindow || p.loads == nil {
			break
		}
	}
	return best
}

// prefer is the total order of nodes that fit equally well: the least loaded, then the first by number.
func (p *pass) prefer(a, b int32) bool { return p.order(a, b) < 0 }

func (p *pass) order(a, b int32) int {
	if p.loads != nil {
		if c := cmp.Compare(p.loadOf(a), p.loadOf(b)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a, b)
}

func (p *pass) loadOf(i int32) int64 {
	if seen := &p.load[i]; seen.pass != p.number {
		*seen = loadSeen{p.number, p.loads[p.v.nodes[i].row.ID]}
	}
	return p.load[i].load
}

// eligible says whether the request may use the node, whatever there is free on it.
func (p *pass) eligible(i int32, r *request, sc *scope) bool {
	if !sc.allows(i) || r.rules != nil && !r.rules.holds.has(i) {
		return false
	}
	if r.within != "" && r.within != "node" {
		_, ok := p.v.nodes[i].row.Label(r.within)
		return ok
	}
	return true
}

// narrow says whether eligible says no to anybody.
func (r *request) narrow(sc *scope) bool {
	return !sc.open() || r.rules != nil || r.within != "" && r.within != "node"
}

// least is the preferred of some nodes, -1 when the request may use none. nodes is ascending.
func (p *pass) least(nodes []int32, r *request, sc *scope) int32 {
	narrow := r.narrow(sc)
	best, seen := int32(-1), 0
	for _, i := range nodes {
		if narrow && !p.eligible(i, r, sc) {
			continue
		}
		if best < 0 || p.prefer(i, best) {
			best = i
		}
		if seen++; seen == tieWindow || p.loads == nil {
			break
		}
	}
	return best
}

// gather lists the candidates of a whole lane.
func (p *pass) gather(r *request, l *lane, sc *scope) {
	p.cands, p.scratch = p.cands[:0], p.scratch[:0]
	for free := r.leastLevel(); free <= l.highLv; free++ {
		lv := &l.levels[free]
		if lv.refuses(r, free) {
			continue
		}
		for _, c := range lv.classes {
			k := r.capacity(c.key.room, c.key.chassis, c.row, l)
			if k == 0 {
				continue
			}
			nodes := c.nodes
			if r.narrow(sc) {
				from := len(p.scratch)
				for _, i := range c.nodes {
					if p.eligible(i, r, sc) {
						p.scratch = append(p.scratch, i)
					}
				}
				nodes = p.scratch[from:len(p.scratch):len(p.scratch)]
			}
			if len(nodes) > 0 {
				p.cands = append(p.cands, candidate{c, nodes, k, r.tightness(c, l)})
			}
		}
	}
}

// part is what one rank of r gets of a node beside GPUs, as the state reckons it.
func (r *request) part(n *node) (muster.MilliCores, muster.Bytes) { return n.row.Share(r.res) }

// take takes what ranks of a request get on a node, GPUs of the lane's model, and gives each rank's slots.
func (p *pass) take(r *request, l *lane, at pick, slots []muster.SlotSet) []muster.SlotSet {
	n := &p.v.nodes[at.node]
	p.undo = append(p.undo, undo{at.node, n.free, n.shared, n.cores, n.memory, n.allocs})
	cores, memory := r.part(n)
	// All of them together first, so that they are neighbours; then each rank's, numbered along the slots.
	var all muster.SlotSet
	if r.share > 0 {
		slots = p.takeShares(r, l, n, at.ranks, slots)
	} else if r.gpus > 0 {
		all = chooseSlots(n.free&r.fit[n.chassis.id]&n.chassis.slotsOf(l), r.gpus*at.ranks)
	}
	n.free = n.free.Minus(all)
	first := len(slots)
	for range at.ranks {
		if r.share > 0 {
			break
		}
		own := chooseSlots(all, r.gpus)
		slots = append(slots, own)
		all = all.Minus(own)
	}
	if at.ranks > 1 && r.gpus > 0 && r.share == 0 {
		slices.SortFunc(slots[first:], func(a, b muster.SlotSet) int { return cmp.Compare(a&-a, b&-b) })
	}
	n.cores -= cores * muster.MilliCores(at.ranks)
	n.memory -= memory * muster.Bytes(at.ranks)
	n.allocs += at.ranks
	p.v.enroll(at.node)
	return slots
}

// rollback gives back what was taken since the mark.
func (p *pass) rollback(mark int) {
	for i := len(p.undo) - 1; i >= mark; i-- {
		u := &p.undo[i]
		n := &p.v.nodes[u.node]
		n.free, n.shared, n.cores, n.memory, n.allocs = u.free, u.shared, u.cores, u.memory, u.allocs
		p.v.enroll(u.node)
	}
	p.undo = p.undo[:mark]
}
