package state

import (
	"fmt"

	"github.com/musterhpc/muster"
)

func (c *CommitPlan) decidedIn() uint64 { return c.Term }

// check leaves the gangs to apply: each is taken or refused for itself.
func (c *CommitPlan) check(*State) *muster.Error { return nil }

func (c *CommitPlan) apply(s *State) Result {
	var result Result
	p := placement{limits: newLimits(&s.t)}
	for _, id := range c.Unhold {
		s.unhold(id)
	}
	for i := range c.Claims {
		s.claim(&c.Claims[i])
	}
	for i := range c.Gangs {
		gang := &c.Gangs[i]
		if reason := p.judge(s, gang); reason != "" {
			result.Refused = append(result.Refused, Refusal{gang.Job, reason})
			continue
		}
		s.place(gang, &p)
	}
	for i := range c.Evictions {
		e := &c.Evictions[i]
		if reason := s.evict(e, &p); reason != "" {
			result.Refused = append(result.Refused, Refusal{e.Job, reason})
			continue
		}
		s.t.cluster.Preempted = s.now()
	}
	return result
}

// placement is what a gang would take of each node.
type placement struct {
	job      muster.JobID
	stopping bool // what is on its way out counts as free, and what victims hold
	victims  []Victim
	limits   *Limits
	spec     *muster.JobSpec
	at       map[muster.NodeID]int
	nodes    []room
}

// room is what is left of a node.
type room struct {
	node   *muster.Node
	slots  muster.SlotSet // wholly free
	shared []muster.SlotShare
	cores  muster.MilliCores
	memory muster.Bytes
	allocs int
	whole  bool // an exclusive rank has it
	taken  taken
}

// judge says why the state as it is does not take a gang, or fills p.
func (p *placement) judge(s *State, gang *GangPlacement) string {
	if p.at == nil {
		p.at = map[muster.NodeID]int{}
	}
	clear(p.at)
	p.job, p.nodes = gang.Job, p.nodes[:0]
	j := s.t.jobs.get(gang.Job)
	switch {
	case j == nil:
		return "the job is not known"
	case j.Phase != muster.JobPending:
		return fmt.Sprintf("the job is %s", j.Phase)
	case j.Backoff > 0:
		return "the job waits for the delay of its retry"
	case gang.Attempt != j.Attempt+1:
		return fmt.Sprintf("attempt %d was planned, but %d is next", gang.Attempt, j.Attempt+1)
	}
	p.spec = s.t.specs.get(j.Spec).Spec
	if len(gang.Ranks) != p.spec.Ranks() {
		return fmt.Sprintf("%d of %d ranks were placed", len(gang.Ranks), p.spec.Ranks())
	}
	if !p.stopping { // what an eviction holds is judged when it is taken: by then the victims have given back
		if hit := p.limits.Hit(j.Queue, j.User, p.spec.MilliGPUs()); hit != nil {
			return hit.String()
		}
	}
	shape := s.t.shapes.get(j.Shape).Shape
	rest := gang.Ranks
	model := ""
	for i := range p.spec.Groups {
		g := &shape.Groups[i]
		if reason := p.judgeGroup(s, i, g, rest[:g.Count], &model); reason != "" {
			return reason
		}
		rest = rest[g.Count:]
	}
	return ""
}

func (p *placement) judgeGroup(s *State, group int, g *muster.ShapeGroup, ranks []RankPlacement, model *string) string {
	d := newDemand(g)
	domain, known := "", false
	for i := range ranks {
		r := &ranks[i]
		if r.Group != group || r.Rank != i {
			return fmt.Sprintf("rank %d of group %d stands where rank %d of group %d belongs", r.Rank, r.Group, i, group)
		}
		at, reason := p.room(s, r.Node)
		if reason != "" {
			return reason
		}
		n := p.nodes[at].node
		if !d.admits(n) {
			return fmt.Sprintf("%s does not meet the constraints", n.Name)
		}
		in, ok := d.domain(n)
		if !ok || known && in != domain {
			return fmt.Sprintf("the ranks are not within one %s", g.Within)
		}
		domain, known = in, true
		if reason := p.nodes[at].take(&g.Resources, r, model); reason != "" {
			return reason
		}
	}
	return ""
}

// taken is what a gang takes of a node.
type taken struct {
	slots  muster.SlotSet // whole
	shares []muster.SlotShare
	cores  muster.MilliCores
	memory muster.Bytes
	allocs int
}

// room finds what is left of a node that may get new work.
func (p *placement) room(s *State, id muster.NodeID) (int, string) {
	if at, ok := p.at[id]; ok {
		return at, ""
	}
	n := s.t.nodes.get(id)
	switch {
	case n == nil:
		return 0, fmt.Sprintf("node number %d is not known", id)
	case n.Lost:
		return 0, fmt.Sprintf("%s is lost", n.Name)
	case n.Drain.On:
		return 0, fmt.Sprintf("%s is draining", n.Name)
	case n.Epoch != s.t.cluster.Epoch:
		return 0, fmt.Sprintf("%s has not said yet what it runs", n.Name)
	}
	p.at[id] = len(p.nodes)
	r := room{node: n, slots: n.FreeSlots, shared: n.Shared, cores: n.FreeMilliCores, memory: n.FreeMemory, allocs: n.Allocs}
	if p.stopping {
		s.t.withStopping(&r, p.victims)
	}
	s.t.withoutHeld(&r, p.job)
	p.nodes = append(p.nodes, r)
	return len(p.nodes) - 1, ""
}

// take subtracts a rank, or says why it does not fit. model is the gang's so far.
func (f *room) take(need *muster.Resources, r *RankPlacement, model *string) string {
	n := f.node
	cores, memory := n.Share(need)
	switch {
	case f.whole || need.Exclusive && f.allocs > 0:
		return fmt.Sprintf("%s is not wholly free", n.Name)
	case r.Slots.Count() != need.GPUs:
		return fmt.Sprintf("%s: %d GPUs for a rank that needs %d", n.Name, r.Slots.Count(), need.GPUs)
	case r.Share != need.Share:
		return fmt.Sprintf("%s: a share of %s for a rank that needs %s", n.Name, r.Share, need.Share)
	case need.Share > 0 && f.shareFree(r.Slots) < need.Share:
		return fmt.Sprintf("%s: GPU slot %s has %s of a GPU left, a rank needs %s", n.Name, r.Slots, f.shareFree(r.Slots), need.Share)
	case need.Share == 0 && r.Slots.Minus(f.slots) != 0:
		return fmt.Sprintf("%s: GPU slots %s are not free", n.Name, r.Slots.Minus(f.slots))
	case r.MilliCores != cores || r.Memory != memory:
		return fmt.Sprintf("%s: %s cores and %s for a rank whose part there is %s and %s", n.Name,
			r.MilliCores, r.Memory.Human(), cores, memory.Human())
	case cores > f.cores:
		return fmt.Sprintf("%s has %s cores left, a rank needs %s", n.Name, f.cores, cores)
	case memory > f.memory:
		return fmt.Sprintf("%s has %s of memory left, a rank needs %s", n.Name, f.memory.Human(), memory.Human())
	}
	for slot := range n.GPUs {
		if !r.Slots.Has(slot) {
			continue
		}
		gpu := &n.GPUs[slot]
		if !need.FitsGPU(gpu) {
			return fmt.Sprintf("%s: GPU %d, %s, is not what the job asks for", n.Name, slot, gpu.Model)
		}
		if *model == "" {
			*model = gpu.Model
		}
		if *model != gpu.Model {
			return fmt.Sprintf("two GPU models in a gang, %s and %s", *model, gpu.Model)
		}
	}
	f.slots = f.slots.Minus(r.Slots)
	if need.Share > 0 {
		slot := r.Slots.Slots()[0]
		f.shared = muster.AddShare(f.shared, slot, need.Share)
		f.taken.shares = append(f.taken.shares, muster.SlotShare{Slot: slot, Held: need.Share})
	} else {
		f.taken.slots |= r.Slots
	}
	f.cores -= cores
	f.memory -= memory
	f.allocs++
	f.whole = need.Exclusive
	f.taken.cores, f.taken.memory, f.taken.allocs = f.taken.cores+cores, f.taken.memory+memory, f.taken.allocs+1
	return ""
}

// shareFree is what is left for a share of the one slot of a set.
func (f *room) shareFree(slots muster.SlotSet) muster.MilliGPUs {
	slot := slots.Slots()[0]
	held := muster.HeldShare(f.shared, slot)
	if held == 0 && !f.slots.Has(slot) || !f.node.UsableSlots().Has(slot) {
		return 0
	}
	return muster.WholeGPU - held
}

// place starts an attempt that judge has found good.
func (s *State) place(gang *GangPlacement, p *placement) {
	for i := range p.nodes {
		took := &p.nodes[i].taken
		n := s.node(p.nodes[i].node.ID)
		n.FreeSlots = n.FreeSlots.Minus(took.slots)
		for _, share := range took.shares {
			n.TakeShare(share.Slot, share.Held)
		}
		n.FreeMilliCores -= took.cores
		n.FreeMemory -= took.memory
		n.Allocs += took.allocs
	}
	s.unhold(gang.Job) // at once: what it gives up is there for the plan's next gang
	j := s.job(gang.Job)
	p.limits.Take(j.Queue, j.User, p.spec.MilliGPUs())
	s.owe(j.Queue)
	q := s.queue(j.Queue)
	j.Attempt, j.Phase = gang.Attempt, muster.JobPreparing
	ranks := len(gang.Ranks)
	j.Attempts = append(j.Attempts, muster.Attempt{Number: gang.Attempt, Placed: s.now(), Live: ranks, Unready: ranks, Waiting: ranks})
	for i := range gang.Ranks {
		r := &gang.Ranks[i]
		id := muster.AllocID{Epoch: s.t.cluster.Epoch, Counter: s.t.cluster.NextAlloc}
		s.t.cluster.NextAlloc++
		lease := p.spec.Groups[r.Group].Disconnect.StopAfter
		if lease == 0 {
			lease = muster.DefaultLease
		}
		var port uint16
		if i == 0 {
			port = s.takePort(r.Node)
		}
		a := s.t.allocs.insert(id, muster.Allocation{
			ID: id, Job: j.ID, Attempt: gang.Attempt, Group: r.Group, Rank: r.Rank, Node: r.Node, Slots: r.Slots,
			Share:      r.Share,
			MilliCores: r.MilliCores, Memory: r.Memory, Port: port, Lease: lease, Phase: muster.AllocPlaced,
			Go:     ranks == 1, // nobody to wait for
			Placed: s.now(), PlacedAt: s.index,
		}, &s.w)
		q.Hold(a, 1)
		s.charge(j, a, 1).penalize(a)
		s.t.jobAllocs.add(jobAllocKey{j.ID, gang.Attempt, id})
		s.t.nodeAllocs.add(nodeAllocKey{r.Node, id})
	}
	s.note(EventPlaced, j, "")
}

// takePort gives the next port of a node's range that no live allocation there has; 0 when there is none.
func (s *State) takePort(id muster.NodeID) uint16 {
	n := s.node(id)
	if n.PortLow == 0 || n.PortHigh < n.PortLow {
		return 0
	}
	var taken [1 << 16 / 64]uint64
	for k := range s.t.nodeAllocs.from(nodeAllocKey{node: id}) {
		if k.node != id {
			break
		}
		port := s.t.allocs.get(k.alloc).Port
		taken[port/64] |= 1 << (port % 64)
	}
	port := n.NextPort
	for range int(n.PortHigh-n.PortLow) + 1 {
		if port < n.PortLow || port > n.PortHigh {
			port = n.PortLow
		}
		next := port + 1
		if taken[port/64]>>(port%64)&1 == 0 {
			n.NextPort = next
			return port
		}
		port = next
	}
	return 0
}
