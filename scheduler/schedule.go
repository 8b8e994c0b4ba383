// Package scheduler decides which pending jobs start where. It is pure: View is its image of a snapshot of the replicated
// state, Schedule gives a Plan for it, Explain says why a job waits. No clock, no randomness, no log, no I/O.
package scheduler

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// Signals is what the leader knows and the replicated state does not.
type Signals struct {
	Suspect map[muster.NodeID]string // no new work there, with the reason
	Load    map[muster.NodeID]int64  // CPU in use, in permille; only breaks ties between nodes that fit equally well
}

// MaxPlanRanks bounds a plan, so that committing it never stalls Apply. One gang wider than this makes a plan of its own.
const MaxPlanRanks = 4096

// Plan is what one pass decided.
type Plan struct {
	Gangs []state.GangPlacement // in the order they were decided; a job is in one at most
	More  bool                  // the plan is full: commit it, advance, and schedule again
}

// Schedule decides what starts now. Jobs are tried in order: in a queue by priority, highest first, then by number; between
// queues by number. A job starts as soon as its whole gang fits; one that does not fit is passed over, with all of its shape,
// and later ones may start. Equal views, signals and times give equal plans.
func Schedule(v *View, signals Signals, _ muster.Time) Plan {
	p := v.begin(signals)
	defer p.rollback(0)
	for len(p.lines) < len(v.queues) {
		p.lines = append(p.lines, nil)
	}
	lines := p.lines[:len(v.queues)]
	for i, q := range v.queues {
		lines[i] = newLine(q, lines[i])
	}
	var plan Plan
	ranks := 0
	for {
		turn := -1
		for i := range lines {
			if len(lines[i]) > 0 && (turn < 0 || lines[i][0].job < lines[turn][0].job) {
				turn = i
			}
		}
		if turn < 0 {
			return plan
		}
		first := lines[turn][0]
		s := first.bucket.shape
		if s.failed == p.number {
			lines[turn].next(true)
			continue
		}
		if width := s.ranks(); len(plan.Gangs) > 0 && ranks+width > MaxPlanRanks {
			plan.More = true
			return plan
		}
		job, ok := v.snapshot.Job(first.job)
		if !ok {
			lines[turn].next(false)
			continue
		}
		placed, ok := p.gang(s, job)
		if !ok {
			s.failed = p.number
			lines[turn].next(true)
			continue
		}
		plan.Gangs = append(plan.Gangs, state.GangPlacement{Job: job.ID, Attempt: job.Attempt + 1, Ranks: placed})
		ranks += len(placed)
		lines[turn].next(false)
	}
}

// begin makes the view's pass ready.
func (v *View) begin(signals Signals) *pass {
	p := &v.pass
	p.v = v
	p.number++
	p.out, p.loads = p.out[:0], nil
	if len(signals.Suspect) > 0 {
		for i := range v.nodes {
			if _, suspect := signals.Suspect[v.nodes[i].row.ID]; suspect {
				p.out.set(int32(i), true)
			}
		}
	}
	if len(signals.Load) > 0 {
		p.loads = signals.Load
		if len(p.load) < len(v.nodes) {
			p.load = make([]loadSeen, len(v.nodes))
		}
	}
	return p
}

func (s *shape) ranks() int {
	n := 0
	for i := range s.requests {
		n += s.requests[i].count
	}
	return n
}

// gang places all ranks of a job, or none: first elsewhere than where earlier attempts met a bad node, then, rather than
// waiting, anywhere.
func (p *pass) gang(s *shape, job *muster.Job) ([]state.RankPlacement, bool) {
	sc := scope{out: p.out}
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
		if best == nil || c.nodes < least.nodes || c.nodes == least.nodes && (c.left < least.left ||
			c.left == least.left && model.free > best.free) {
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
			cores, memory := r.share(n)
			slots = p.take(r, l, at, slots[:0])
			for _, own := range slots {
				placed[first+rank] = state.RankPlacement{Group: k, Rank: rank, Node: n.row.ID, Slots: own,
					MilliCores: cores, Memory: memory}
				rank++
			}
		}
	}
	return placed
}
