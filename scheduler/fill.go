package scheduler

import (
	"cmp"
	"slices"
)

// fill spreads the ranks over the gathered candidates: whole nodes, those that hold most first, which gives the fewest nodes;
// the last node is the tightest that takes what remains.
func (p *pass) fill(r *request) (cost, bool) {
	total := 0
	for i := range p.cands {
		total += min(r.count, p.cands[i].capacity*len(p.cands[i].nodes))
	}
	if total < r.count {
		return cost{}, false
	}
	slices.SortFunc(p.cands, func(a, b candidate) int {
		if c := cmp.Compare(b.capacity, a.capacity); c != 0 {
			return c
		}
		if c := a.tight.compare(b.tight); c != 0 {
			return c
		}
		return cmp.Compare(a.nodes[0], b.nodes[0])
	})
	from := len(p.picks)
	var sum cost
	remaining := r.count
	for at := 0; remaining > 0; {
		end := at + 1 // candidates that fit equally well are one
		for end < len(p.cands) && p.cands[end].capacity == p.cands[at].capacity && p.cands[end].tight == p.cands[at].tight {
			end++
		}
		capacity, tight := p.cands[at].capacity, p.cands[at].tight
		nodes := p.inOrder(p.cands[at:end], (remaining+capacity-1)/capacity)
		for len(nodes) > 0 && remaining > capacity {
			p.picks = append(p.picks, pick{nodes[0], capacity})
			sum.nodes++
			sum.left += tight.free - capacity*r.gpus
			nodes = nodes[1:]
			remaining -= capacity
		}
		if len(nodes) > 0 { // remaining ≤ capacity: the last node; the tightest for it may be any of those that follow
			node, best := nodes[0], tight
			for i := end; i < len(p.cands) && p.cands[i].capacity >= remaining; i++ {
				c := &p.cands[i]
				if d := c.tight.compare(best); d > 0 {
					continue
				} else if k := p.preferred(c.nodes); d < 0 || p.prefer(k, node) {
					node, best = k, c.tight
				}
			}
			p.picks = append(p.picks, pick{node, remaining})
			sum.nodes++
			sum.left += best.free - remaining*r.gpus
			remaining = 0
		}
		at = end
	}
	slices.SortFunc(p.picks[from:], func(a, b pick) int { return cmp.Compare(a.node, b.node) })
	return sum, true
}

// inOrder gives as many nodes of some candidates as are wanted, or all, as prefer orders them.
func (p *pass) inOrder(cands []candidate, wanted int) []int32 {
	if len(cands) == 1 && p.loads == nil {
		return cands[0].nodes
	}
	p.sorted = p.sorted[:0]
	for i := range cands {
		nodes := cands[i].nodes
		p.sorted = append(p.sorted, nodes[:min(len(nodes), wanted+tieWindow)]...)
	}
	slices.SortFunc(p.sorted, p.order)
	return p.sorted
}

func (p *pass) preferred(nodes []int32) int32 {
	best := nodes[0]
	if p.loads != nil {
		for _, i := range nodes[1:min(len(nodes), tieWindow)] {
			if p.prefer(i, best) {
				best = i
			}
		}
	}
	return best
}
