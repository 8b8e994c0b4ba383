package scheduler

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

func (s *shape) ranks() int {
	n := 0
	for i := range s.requests {
		n += s.requests[i].count
	}
	return n
}

// gang places all ranks of a job, or none: first elsewhere than where earlier attempts met a bad node, then, rather than
// waiting, anywhere.
func (p *pass) gang(s *shape, job *muster.Job, wide bool) ([]state.RankPlacement, bool) {
	sc := scope{out: p.out, wide: wide}
	if sc.avoid = p.v.blamed(job); len(sc.avoid) > 0 {
		if model, ok := p.choose(s, &sc); ok {
			return p.commit(s, model, &sc), true
		}
		sc.avoid = nil
	}
	model, ok := p.choose(s, &sc)
	if !ok {
		return nil, false
	}
	return p.commit(s, model, &sc), true
}

// blamed lists the nodes that ended a job's latest attempts by a fault of their own.
func (v *View) blamed(job *muster.Job) []int32 {
	var nodes []int32
	for i := len(job.Attempts) - 1; i >= 0; i-- {
		a := &job.Attempts[i]
		if a.Class != muster.ClassNode && a.Class != muster.ClassGPU && a.Class != muster.ClassPrepare {
			break
		}
		if culprit, ok := v.snapshot.Alloc(a.Culprit); ok {
			if at, known := v.find(culprit.Node); known {
				nodes = append(nodes, at)
			}
		}
	}
	return nodes
}

// choose finds the GPU model with which the gang fits best; nil for a gang without GPUs. Of models that cost the same, the one
// of which most is free, then the first by name.
func (p *pass) choose(s *shape, sc *scope) (*lane, bool) {
	p.v.learn(s)
	if !s.gpus {
		_, _, ok := p.try(s, nil, sc)
		return nil, ok
	}
	var best *lane
	var least cost
	for _, model := range s.models {
		c, _, ok := p.try(s, model, sc)
		if !ok {
			continue
		}
		if best == nil || p.better(&c, &least, model, best) {
			best, least = model, c
		}
	}
	return best, best != nil
}

// try places the gang with one model and takes nothing for good. blocked is the request that found no room.
func (p *pass) try(s *shape, model *lane, sc *scope) (sum cost, blocked *request, ok bool) {
	mark := len(p.undo)
	defer p.rollback(mark)
	for _, k := range s.order {
		r := &s.requests[k]
		p.picks = p.picks[:0]
		c, ok := p.place(r, p.v.laneOf(r, model), sc)
		if !ok {
			return cost{}, r, false
		}
		sum.nodes += c.nodes
		sum.left += c.left
		sum.loss += c.loss
		sum.node = c.node
		if len(s.requests) > 1 {
			var slots []muster.SlotSet
			for _, at := range p.picks {
				slots = p.take(r, p.v.laneOf(r, model), at, slots[:0])
			}
		}
	}
	return sum, nil, true
}

// commit does what try found possible and keeps it. Ranks are numbered along the nodes.
func (p *pass) commit(s *shape, model *lane, sc *scope) []state.RankPlacement {
	placed := make([]state.RankPlacement, s.ranks())
	var slots []muster.SlotSet
	for _, k := range s.order {
		r := &s.requests[k]
		l := p.v.laneOf(r, model)
		first := 0
		for g := range k {
			first += s.requests[g].count
		}
		p.picks = p.picks[:0]
		p.place(r, l, sc)
		rank := 0
		for _, at := range p.picks {
			n := &p.v.nodes[at.node]
			cores, memory := r.part(n)
			slots = p.take(r, l, at, slots[:0])
			for _, own := range slots {
				placed[first+rank] = state.RankPlacement{Group: k, Rank: rank, Node: n.row.ID, Slots: own, Share: muster.MilliGPUs(r.share),
					MilliCores: cores, Memory: memory}
				rank++
			}
		}
	}
	return placed
}
