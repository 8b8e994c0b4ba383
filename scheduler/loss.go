package scheduler

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/musterhpc/muster"
)

// What a placement takes from the work to come is reckoned in GPUs; docs/scoring.md explains the terms. Losses that are
// nearly equal are equal: then the node that comes first decides, which keeps the others whole.
const (
	lossStep       = 0.04 // GPUs
	scarcityWeight = 0.4
)

// leastLevel is how many free GPUs a node needs at the least.
func (r *request) leastLevel() int {
	if r.share > 0 {
		return 0
	}
	return r.gpus
}

// refuses says whether no class of the level, each with so many free GPUs, can take a rank.
func (l *level) refuses(r *request, free int) bool {
	if len(l.classes) == 0 {
		return true
	}
	if cores, memory := l.bounds(); cores < r.cores || memory < r.memory {
		return true
	}
	return free == 0 && l.open < r.share
}

// cheapest finds the node that takes all ranks and loses least by it.
func (p *pass) cheapest(r *request, l *lane, sc *scope) (int32, int, bool) {
	node, least := int32(-1), 0
	var tight tightness // breaks ties, but between nodes for shares: those fill the first node before the next
	from := r.leastLevel() * r.count
	if r.share > 0 {
		from = 0
	}
	for free := from; free <= l.highLv; free++ {
		lv := &l.levels[free]
		if lv.refuses(r, free) {
			continue
		}
		for _, c := range lv.classes {
			if r.capacity(c.key.room, c.key.chassis, c.row, l) < r.count {
				continue
			}
			loss, now := p.v.loss(r, c, l), tightness{}
			if r.share == 0 {
				now = r.tightness(c, l)
			}
			order := cmp.Compare(loss, least)
			if order == 0 {
				order = now.compare(tight)
			}
			if node >= 0 && (order > 0 || order == 0 && p.loads == nil && c.nodes[0] > node) {
				continue
			}
			if i := p.least(c.nodes, r, sc); i >= 0 && (node < 0 || order < 0 || p.prefer(i, node)) {
				node, least, tight = i, loss, now
			}
		}
	}
	return node, least, node >= 0
}

// worthOf is what all free GPUs and parts of GPUs of a node of the class are worth, in GPUs.
func (v *View) worthOf(c *class) float64 {
	if c.valued != v.mix.version {
		c.valued, c.worth = v.mix.version, float64(c.key.room.free.Count())
		for _, free := range c.key.room.open.each {
			c.worth += v.mix.pack.worth(free)
		}
	}
	return c.worth
}

// loss is what a node of the class loses when it takes all ranks of a request, in steps: parts of GPUs that become worth less
// than the shares that took from them, GPUs that are stranded because no cores are left for them, and models that others
// depend on.
func (v *View) loss(r *request, c *class, l *lane) int {
	m := &v.mix
	loss, taken := 0.0, float64(r.gpus*r.count)
	if r.share > 0 {
		loss, taken = v.shareLoss(r, c, l)
	}
	if m.kappa > 0 {
		cores, _ := c.row.Share(r.res)
		worth, have := v.worthOf(c), float64(c.key.room.cores)
		loss += max(0, worth-taken-(have-float64(cores)*float64(r.count))/m.kappa) - max(0, worth-have/m.kappa)
	}
	if m.bound && r.gpus > 0 {
		loss += scarcityWeight * m.prices[l.id] * float64(r.milli()*r.count) / 1000
	}
	return int(math.Round(loss / lossStep))
}

// shareLoss is what the GPUs of a node lose by shares beyond what those are worth, and what they are worth less.
func (v *View) shareLoss(r *request, c *class, l *lane) (loss, taken float64) {
	fit := r.fit[c.key.chassis.id] & c.key.chassis.slotsOf(l)
	whole := (c.key.room.free & fit).Count()
	var space [muster.MaxSlots]int
	open := space[:0]
	for part, free := range c.key.room.open.each {
		if free >= r.share && c.key.chassis.parts[part].slots&fit != 0 {
			open = append(open, free)
		}
	}
	least := v.leastLoss(r)
	for range r.count {
		best, at := math.Inf(1), -1
		for i, free := range open {
			if free >= r.share {
				if d := v.mix.pack.loss(free, r.share); d < best-1e-9 || d < best+1e-9 && (at < 0 || free < open[at]) {
					best, at = d, i
				}
			}
		}
		if whole > 0 {
			if d := v.mix.pack.loss(1000, r.share); d < best-1e-9 {
				best, at = d, len(open)
				whole--
				open = append(open, 1000)
			}
		}
		if at < 0 {
			return math.Inf(1), 0
		}
		open[at] -= r.share
		taken += best
		loss += best - least
	}
	return loss, taken
}

// leastLoss is what a share of that size is worth: what it costs the GPU where it fits best.
func (v *View) leastLoss(r *request) float64 {
	if r.valued != v.mix.version {
		r.valued, r.worth = v.mix.version, math.Inf(1)
		for free := 1000; free >= r.share; free -= 1000 / shareUnits {
			r.worth = min(r.worth, v.mix.pack.loss(free, r.share))
		}
	}
	return r.worth
}

// takeShares takes shares for ranks on a node, GPUs of the lane's model, and gives each rank's slot.
func (p *pass) takeShares(r *request, l *lane, n *node, ranks int, slots []muster.SlotSet) []muster.SlotSet {
	for range ranks {
		slot := p.v.shareSlot(r, l, n)
		n.free = n.free.Minus(muster.SlotSet(0).With(slot))
		n.shared = muster.AddShare(n.shared, slot, muster.MilliGPUs(r.share))
		slots = append(slots, muster.SlotSet(0).With(slot))
	}
	return slots
}

// shareSlot chooses the GPU for a share: the one that loses least by it, of equal ones the fullest, then the first.
func (v *View) shareSlot(r *request, l *lane, n *node) int {
	fit := r.fit[n.chassis.id] & n.chassis.slotsOf(l)
	best, slot, left := math.Inf(1), -1, 0
	for _, s := range n.shared {
		free := int(muster.WholeGPU - s.Held)
		if free < r.share || !fit.Has(s.Slot) || !n.usable.Has(s.Slot) {
			continue
		}
		if d := v.mix.pack.loss(free, r.share); d < best-1e-9 || d < best+1e-9 && free < left {
			best, slot, left = d, s.Slot, free
		}
	}
	if whole := n.free & fit; whole != 0 && (slot < 0 || v.mix.pack.loss(1000, r.share) < best-1e-9) {
		slot = bits.TrailingZeros64(uint64(chooseSlots(whole, 1)))
	}
	return slot
}

// better says whether a gang on one model costs less than on another.
func (p *pass) better(c, least *cost, model, best *lane) bool {
	switch {
	case c.nodes != least.nodes:
		return c.nodes < least.nodes
	case c.loss != least.loss:
		return c.loss < least.loss
	case p.v.mix.told && c.nodes == 1:
		return p.prefer(c.node, least.node)
	case c.left != least.left:
		return c.left < least.left
	}
	return model.free > best.free
}
