package scheduler

import (
	"slices"
	"sort"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// View is the scheduler's image of a snapshot. One goroutine at a time may use it: Schedule and Explain work in place, and
// leave it as it was.
type View struct {
	snapshot *state.Snapshot // that it is the image of; its rows say where a changed job was
	epoch    muster.Epoch

	queues  []*queue   // by name
	running []*running // by number
	spaces  [][]head   // for lines
	shapes  map[muster.ShapeID]*shape

	nodes      []node // by number
	classes    map[classKey]*class
	spare      []*class
	cpu        *lane   // lane 0
	lanes      []*lane // by id, from 1
	chassis    []*chassis
	byGPUs     map[string]*chassis
	chassisKey []byte
	rules      map[string]*ruleSet
	domains    map[string][]domain // by label key; made when first asked for

	nodesVersion   uint64 // counts changes of what the nodes could hold if nothing ran
	countedVersion uint64
	counted        amounts // what they have, as of countedVersion
	kins           map[string]kinID
	kinNames       []string                     // by number
	couldSince     map[muster.JobID]muster.Time // when gangs first could have spread; see topology.go
	mix            mix
	gpus           int // on placeable nodes, and the cores of those that have any
	gpuCores       muster.MilliCores

	pass pass // space for the pass at work
}

// node is what the view keeps of a node. What may change in a pass stands here, the rest in the row.
type node struct {
	row       *muster.Node
	chassis   *chassis
	class     *class // nil: not placeable
	placeable bool   // registered in this epoch, not lost, not draining
	usable    muster.SlotSet

	free   muster.SlotSet     // and usable
	shared []muster.SlotShare // not to be written to
	cores  muster.MilliCores
	memory muster.Bytes
	allocs int
}

// room is what the node has to give now, in the form of a class key.
func (n *node) room() room {
	r := room{cores: n.cores, memory: n.memory, empty: n.allocs == 0}
	for i := range n.chassis.parts {
		slots := n.chassis.parts[i].slots
		r.free |= slots.Lowest((n.free & slots).Count())
	}
	if len(n.shared) > 0 {
		r.open = n.open()
	}
	return r
}

// open writes what is left of GPUs that are held in shares; see openGPUs.
func (n *node) open() openGPUs {
	var space [3 * muster.MaxSlots]byte
	list := space[:0]
	for part := range n.chassis.parts {
		from := len(list)
		for _, s := range n.shared {
			if left := muster.WholeGPU - s.Held; left > 0 && n.usable.Has(s.Slot) && n.chassis.parts[part].slots.Has(s.Slot) {
				list = append(list, byte(part), byte(left>>8), byte(left))
			}
		}
		sortTriples(list[from:])
	}
	return openGPUs(list)
}

// whole is what the node would have to give if nothing ran and every GPU was well.
func (n *node) whole() room {
	return room{free: muster.SlotRange(len(n.row.GPUs)), cores: n.row.MilliCores, memory: n.row.Memory, empty: true}
}

// NewView makes the image of s.
func NewView(s *state.Snapshot) *View {
	v := &View{
		snapshot: s,
		epoch:    s.Cluster().Epoch,
		shapes:   map[muster.ShapeID]*shape{},
		classes:  map[classKey]*class{},
		cpu:      &lane{},
		byGPUs:   map[string]*chassis{},
		rules:    map[string]*ruleSet{},
		domains:  map[string][]domain{},
		kins:     map[string]kinID{"": 0},
		kinNames: []string{""},
		mix:      newMix(),

		couldSince: map[muster.JobID]muster.Time{},
	}
	for r := range s.Specs() {
		v.mix.count(r.Spec, int64(r.Jobs))
	}
	for n := range s.Nodes() {
		v.setNode(n)
	}
	for k := range s.Pending() {
		if job, ok := s.Job(k.Job); ok {
			v.addPending(job)
		}
	}
	v.readRunning(s)
	return v
}

// Advance brings the view forward to s. c names what changed since the view's own snapshot; of several entries, all that
// each of them names.
func (v *View) Advance(s *state.Snapshot, c state.Changed) {
	if s.Cluster().Epoch != v.epoch {
		v.renew(s)
		return
	}
	before := v.snapshot
	v.snapshot = s
	for _, id := range c.Nodes {
		row, is := s.Node(id)
		is = is && !row.Removed
		at, was := v.find(id)
		switch {
		case is && (was || int(at) == len(v.nodes)):
			v.setNode(row)
		case is || was: // positions shift: a node is gone, or was left out of an earlier Changed; rare enough to begin again
			v.renew(s)
			return
		}
	}
	for _, id := range c.Jobs {
		old, was := before.Job(id)
		now, is := s.Job(id)
		switch {
		case is && !was:
			v.mix.count(s.Spec(now.Spec), 1)
		case was && !is:
			v.mix.count(before.Spec(old.Spec), -1)
		}
		v.setRunning(id, now, is)
		if len(v.couldSince) > 0 && (!is || now.Phase != muster.JobPending) {
			delete(v.couldSince, id)
		}
		waits := is && s.IsPending(pendingKey(now))
		if was && before.IsPending(pendingKey(old)) {
			key := v.bucketKeyOf(before, old)
			if waits && key.own == 0 && key == v.bucketKeyOf(s, now) {
				continue
			}
			v.removePending(key, id)
		}
		if waits {
			v.addPending(now)
		}
	}
}

// renew begins again from s.
func (v *View) renew(s *state.Snapshot) {
	could := v.couldSince
	*v = *NewView(s)
	v.couldSince = could
}

// find gives a node's position, or where it would be.
func (v *View) find(id muster.NodeID) (int32, bool) {
	if k := len(v.nodes); k == 0 || v.nodes[k-1].row.ID < id {
		return int32(k), false
	}
	at := sort.Search(len(v.nodes), func(i int) bool { return v.nodes[i].row.ID >= id })
	return int32(at), v.nodes[at].row.ID == id
}

// setNode takes over a node's row; a new one has a higher number than all before.
func (v *View) setNode(row *muster.Node) {
	i, known := v.find(row.ID)
	if !known {
		v.nodes = append(v.nodes, node{})
	}
	n := &v.nodes[i]
	old := n.row
	v.tally(i, -1)
	n.row = row
	if old == nil || !sameGPUs(old.GPUs, row.GPUs) {
		v.expel(i)
		n.chassis = v.chassisOf(row.GPUs)
	}
	if old == nil || !sameToRules(old, row) {
		v.applyRules(i, row)
	}
	if old == nil || !slices.Equal(old.Labels, row.Labels) {
		clear(v.domains)
	}
	placeable, usable := row.Epoch == v.epoch && !row.Lost && !row.Drain.On, row.UsableSlots()
	if old == nil || placeable != n.placeable || usable != n.usable || !sameGPUs(old.GPUs, row.GPUs) || !sameToRules(old, row) {
		v.nodesVersion++
	}
	n.placeable, n.usable = placeable, usable
	n.free = row.FreeSlots & n.usable
	n.shared = row.Shared
	n.cores, n.memory, n.allocs = row.FreeMilliCores, row.FreeMemory, row.Allocs
	v.tally(i, 1)
	v.enroll(i)
}

// tally counts a placeable node's GPUs, or with sign -1 no longer.
func (v *View) tally(i int32, sign int) {
	n := &v.nodes[i]
	if !n.placeable || len(n.row.GPUs) == 0 {
		return
	}
	v.gpus += sign * len(n.row.GPUs)
	v.gpuCores += muster.MilliCores(sign) * n.row.MilliCores
	for _, share := range n.chassis.lanes {
		share.lane.total += sign * share.slots.Count()
		v.mix.dirty = true
	}
}
