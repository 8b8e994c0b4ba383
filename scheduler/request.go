package scheduler

import (
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// shape is an interned shape with what placement works out once for all jobs that have it.
type shape struct {
	id       muster.ShapeID
	buckets  int // that use it
	requests []request
	order    []int   // of requests, the largest rank first: a small one always finds a gap that a large one would have filled
	models   []*lane // that every rank with GPUs can use, by name; empty when no rank has GPUs
	gpus     bool
	need     amounts
	gpuMilli int64 // of all ranks, in thousandths

	failed      uint64      // number of the pass in which it could not be placed,
	failedEnd   muster.Time // when it would end then or later
	unplanned   uint64      // number of the pass in which nothing more is planned for it
	noVictims   uint64      // number of the pass in which it found no victims, as a job of
	noVictimsOf *queue
	judged      uint64 // View.nodesVersion for which runs and narrow hold
	runs        bool   // it would run if nothing else did
	narrow      bool   // then even in the domain that it would like
	patience    time.Duration
}

// request is a group of a shape: count equal ranks.
type request struct {
	count  int
	gpus   int // of a rank
	share  int // thousandths of its one GPU; 0: its GPUs are whole
	within string
	prefer string
	res    *muster.Resources
	rules  *ruleSet         // nil: no constraints
	fit    []muster.SlotSet // by chassis.id: slots with a GPU of the wanted models and memory
	// What a rank needs at the least on any node: the amounts it names, or the default of a rank without GPUs.
	cores  muster.MilliCores
	memory muster.Bytes

	valued uint64  // version of the mix that worth is of
	worth  float64 // of a share: what it costs the GPU where it fits best
}

// shape gives a shape's entry; nil when the state does not know it.
func (v *View) shape(id muster.ShapeID) *shape {
	if s := v.shapes[id]; s != nil {
		return s
	}
	row, ok := v.snapshot.Shape(id)
	if !ok {
		return nil
	}
	s := v.newShape(id, row.Shape)
	v.shapes[id] = s
	return s
}

func (v *View) newShape(id muster.ShapeID, row *muster.Shape) *shape {
	s := &shape{id: id, requests: make([]request, len(row.Groups))}
	for i := range row.Groups {
		g := &row.Groups[i]
		r := request{count: g.Count, gpus: g.Resources.GPUs, share: int(g.Resources.Share), within: g.Within, prefer: g.Prefer,
			res: &g.Resources, rules: v.ruleSet(g.Constraints)}
		s.patience = max(s.patience, g.Patience)
		if !r.res.Exclusive {
			r.cores, r.memory = r.res.MilliCores, r.res.Memory
			if r.gpus == 0 {
				r.cores, r.memory = (&muster.Node{}).Share(r.res)
			}
		}
		s.requests[i] = r
		s.order = append(s.order, i)
		s.gpus = s.gpus || r.gpus > 0
		s.gpuMilli += int64(r.milli()) * int64(r.count)
		s.need.add(amounts{float64(r.gpus) * 1000, float64(r.cores), float64(r.memory / state.MemoryUnit)}, float64(r.count))
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return larger(&s.requests[a], &s.requests[b]) })
	return s
}

// larger orders requests by what one rank needs, most first.
func larger(a, b *request) int {
	if a.res.Exclusive != b.res.Exclusive {
		if a.res.Exclusive {
			return -1
		}
		return 1
	}
	if a.gpus != b.gpus {
		return b.gpus - a.gpus
	}
	if a.milli() != b.milli() {
		return b.milli() - a.milli()
	}
	if a.cores != b.cores {
		return int(max(-1, min(1, b.cores-a.cores)))
	}
	return int(max(-1, min(1, b.memory-a.memory)))
}

// milli is how many thousandths of GPUs a rank takes.
func (r *request) milli() int {
	if r.share > 0 {
		return r.share
	}
	return r.gpus * 1000
}

// dropShape forgets a shape that no pending job has any more.
func (v *View) dropShape(s *shape) {
	delete(v.shapes, s.id)
	for i := range s.requests {
		if rules := s.requests[i].rules; rules != nil {
			if rules.users--; rules.users == 0 {
				delete(v.rules, rules.key)
			}
		}
	}
}

// learn brings a shape up to date with the kinds of GPUs that the cluster has.
func (v *View) learn(s *shape) {
	if !s.gpus || len(s.requests[s.order[0]].fit) == len(v.chassis) {
		return
	}
	for i := range s.requests {
		r := &s.requests[i]
		for k := len(r.fit); k < len(v.chassis); k++ {
			var fit muster.SlotSet
			for p := range v.chassis[k].parts {
				if part := &v.chassis[k].parts[p]; r.res.FitsGPU(&part.gpu) {
					fit |= part.slots
				}
			}
			r.fit = append(r.fit, fit)
		}
	}
	s.models = s.models[:0]
	for _, l := range v.lanes {
		if v.serves(l, s) {
			s.models = append(s.models, l)
		}
	}
	slices.SortFunc(s.models, func(a, b *lane) int { return strings.Compare(a.model, b.model) })
}

// serves says whether every rank of s that wants GPUs finds some of the lane's model that fit.
func (v *View) serves(l *lane, s *shape) bool {
	for i := range s.requests {
		r := &s.requests[i]
		if r.gpus > 0 && !slices.ContainsFunc(v.chassis, func(c *chassis) bool { return r.fit[c.id]&c.slotsOf(l) != 0 }) {
			return false
		}
	}
	return true
}

// laneOf is where the request looks for nodes when its gang uses the given model.
func (v *View) laneOf(r *request, model *lane) *lane {
	if r.gpus == 0 {
		return v.cpu
	}
	return model
}

// capacity is how many ranks of the request a room of the given chassis holds, with GPUs of the lane's model. row is any node
// of that kind: what a rank gets depends on the whole machine.
func (r *request) capacity(in room, c *chassis, row *muster.Node, l *lane) int {
	ranks := r.count
	switch {
	case r.share > 0:
		fit := r.fit[c.id] & c.slotsOf(l)
		holds := (in.free & fit).Count() * (1000 / r.share)
		for part, free := range in.open.each {
			if c.parts[part].slots&fit != 0 {
				holds += free / r.share
			}
		}
		ranks = min(ranks, holds)
	case r.gpus > 0:
		ranks = min(ranks, (in.free&r.fit[c.id]&c.slotsOf(l)).Count()/r.gpus)
	}
	if ranks == 0 || in.cores < r.cores || in.memory < r.memory {
		return 0
	}
	if r.res.Exclusive {
		if !in.empty || in.cores < row.MilliCores || in.memory < row.Memory {
			return 0
		}
		return 1
	}
	cores, memory := row.Share(r.res)
	if cores > 0 {
		ranks = int(min(int64(ranks), int64(in.cores/cores)))
	}
	if memory > 0 {
		ranks = int(min(int64(ranks), int64(in.memory/memory)))
	}
	return ranks
}

// ruleSet is a list of constraints with the nodes on which all of them hold.
type ruleSet struct {
	key   string
	list  []muster.Constraint
	tests []func(*muster.Node) bool
	users int // requests
	holds nodeSet
}

// ruleSet gives the set for constraints, nil for none; equal lists share one.
func (v *View) ruleSet(list []muster.Constraint) *ruleSet {
	if len(list) == 0 {
		return nil
	}
	var b strings.Builder
	for i := range list {
		c := &list[i]
		for _, s := range []string{c.Attribute, string(c.Operator), c.Value} {
			b.WriteString(s)
			b.WriteByte(0)
		}
	}
	s := v.rules[b.String()]
	if s == nil {
		s = &ruleSet{key: b.String(), list: list}
		for i := range list {
			s.tests = append(s.tests, list[i].Matcher())
		}
		for i := range v.nodes {
			s.holds.set(int32(i), s.allHold(v.nodes[i].row))
		}
		v.rules[s.key] = s
	}
	s.users++
	return s
}

func (s *ruleSet) allHold(row *muster.Node) bool {
	for _, holds := range s.tests {
		if !holds(row) {
			return false
		}
	}
	return true
}

// applyRules judges a node that is new, or no longer the machine it was, by all rules.
func (v *View) applyRules(i int32, row *muster.Node) {
	for _, s := range v.rules { // each for itself: the order decides nothing
		s.holds.set(i, s.allHold(row))
	}
}

// domain is the nodes that have the same value of a label.
type domain struct {
	value string
	nodes []int32 // ascending
}

// domainsOf groups the nodes by a label, by value. Nodes without it are in none.
func (v *View) domainsOf(key string) []domain {
	if d, ok := v.domains[key]; ok {
		return d
	}
	at := map[string]int{}
	d := []domain{}
	for i := range v.nodes {
		value, ok := v.nodes[i].row.Label(key)
		if !ok {
			continue
		}
		k, ok := at[value]
		if !ok {
			k = len(d)
			at[value] = k
			d = append(d, domain{value: value})
		}
		d[k].nodes = append(d[k].nodes, int32(i))
	}
	slices.SortFunc(d, func(a, b domain) int { return strings.Compare(a.value, b.value) })
	v.domains[key] = d
	return d
}

// sameGPUs says whether two machines have the same devices, by slot; their health is not looked at.
func sameGPUs(a, b []muster.GPU) bool {
	return slices.EqualFunc(a, b, func(x, y muster.GPU) bool { return x.Model == y.Model && x.Memory == y.Memory })
}

// sameToRules says whether no constraint can tell two rows of a node apart.
func sameToRules(a, b *muster.Node) bool {
	return a.Name == b.Name && a.MilliCores == b.MilliCores && a.Memory == b.Memory && a.Fencing == b.Fencing &&
		a.Version == b.Version && a.Address == b.Address && slices.Equal(a.Labels, b.Labels) &&
		slices.EqualFunc(a.GPUs, b.GPUs, func(x, y muster.GPU) bool {
			return x.Model == y.Model && (x.Health == muster.GPULost) == (y.Health == muster.GPULost)
		})
}
