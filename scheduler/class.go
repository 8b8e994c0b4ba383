package scheduler

import (
	"slices"
	"sort"

	"github.com/musterhpc/muster"
)

// Nodes are looked at by class, not one by one: what a class can take is worked out once for all its nodes. Classes lie in
// lanes, one for each GPU model and one for work without GPUs, and in a lane by how many GPUs are free, so that the tightest
// fit comes first and a full cluster is seen to be full without a walk.

// chassis is a set of GPUs as a kind of machine has them, by slot; few exist in a cluster.
type chassis struct {
	id    int
	gpus  int // slots
	parts []part
	lanes []laneShare // by lane.id, ascending
}

// part is the slots of a chassis that hold equal devices.
type part struct {
	gpu   muster.GPU // Model and Memory only
	slots muster.SlotSet
}

// laneShare is the slots of a chassis that hold a model.
type laneShare struct {
	lane  *lane
	slots muster.SlotSet
}

// slotsOf is the slots that hold the lane's model; for the lane without GPUs all of them.
func (c *chassis) slotsOf(l *lane) muster.SlotSet {
	if l.id == 0 {
		return muster.SlotRange(c.gpus)
	}
	for i := range c.lanes {
		if c.lanes[i].lane == l {
			return c.lanes[i].slots
		}
	}
	return 0
}

// room is what a node has to give: now, or when nothing ran on it.
type room struct {
	free   muster.SlotSet
	cores  muster.MilliCores
	memory muster.Bytes
	empty  bool
	open   openGPUs
}

// openGPUs is what is left of GPUs that are held in shares: for each the part of the chassis and the free thousandths, in
// three bytes, ascending. It is text so that a class key can be compared.
type openGPUs string

// each yields the part and the free thousandths of each.
func (o openGPUs) each(yield func(part, free int) bool) {
	for ; len(o) >= 3; o = o[3:] {
		if !yield(int(o[0]), int(o[1])<<8|int(o[2])) {
			return
		}
	}
}

// sortTriples sorts what each yields; there are a few.
func sortTriples(b []byte) {
	for i := 3; i < len(b); i += 3 {
		for k := i; k > 0 && string(b[k-3:k]) > string(b[k:k+3]); k -= 3 {
			for d := range 3 {
				b[k-3+d], b[k+d] = b[k+d], b[k-3+d]
			}
		}
	}
}

// classKey is what placement sees of a node beside its labels. Which of equal slots are free is not part of it: room.free
// has the lowest slots of each part, as many as are free.
type classKey struct {
	chassis     *chassis
	totalCores  muster.MilliCores
	totalMemory muster.Bytes
	room        room
}

type class struct {
	key    classKey
	row    *muster.Node // of one of them: for what they have in common
	nodes  []int32      // positions in View.nodes, ascending
	valued uint64       // version of the mix that worth is of
	worth  float64      // of its free GPUs and parts of GPUs
	at     []int32      // position in its level of the lane without GPUs, then of each of chassis.lanes
}

// lane holds classes by the number of free GPUs of a model. Lane 0, of no model, holds all, by the number of free GPUs.
type lane struct {
	id     int
	model  string
	levels [muster.MaxSlots + 1]level
	total  int // GPUs of the model on placeable nodes
	free   int // those of which nothing is held
	highLv int // no level above it holds a class
}

// level is the classes with so many free GPUs, in no order, and their nodes. The maxima are over its classes' rooms.
type level struct {
	classes []*class
	nodes   nodeSet
	stale   bool // a class has gone: the maxima may be too high
	cores   muster.MilliCores
	memory  muster.Bytes
	open    int // thousandths
}

// bounds brings the maxima up to date and gives them.
func (l *level) bounds() (muster.MilliCores, muster.Bytes) {
	if l.stale {
		l.cores, l.memory, l.open, l.stale = 0, 0, 0, false
		for _, c := range l.classes {
			l.widen(&c.key.room)
		}
	}
	return l.cores, l.memory
}

func (l *level) widen(r *room) {
	l.cores, l.memory = max(l.cores, r.cores), max(l.memory, r.memory)
	for _, free := range r.open.each {
		l.open = max(l.open, free)
	}
}

func (l *lane) put(c *class, free int, at *int32) {
	lv := &l.levels[free]
	*at = int32(len(lv.classes))
	lv.classes = append(lv.classes, c)
	lv.widen(&c.key.room)
	l.highLv = max(l.highLv, free)
}

// drop takes out the class at position at; moved is the one that now has it, nil when none has.
func (l *lane) drop(free int, at int32) (moved *class) {
	lv := &l.levels[free]
	last := len(lv.classes) - 1
	if int(at) != last {
		moved = lv.classes[last]
		lv.classes[at] = moved
	}
	lv.classes[last] = nil
	lv.classes = lv.classes[:last]
	lv.stale = true
	for l.highLv > 0 && len(l.levels[l.highLv].classes) == 0 {
		l.highLv--
	}
	return moved
}

// position is where c keeps its place in l.
func (c *class) position(l *lane) *int32 {
	if l.id == 0 {
		return &c.at[0]
	}
	for i := range c.key.chassis.lanes {
		if c.key.chassis.lanes[i].lane == l {
			return &c.at[i+1]
		}
	}
	return nil
}

// enroll puts a node into the class of its present state, or takes it out of all when it is not placeable.
func (v *View) enroll(i int32) {
	n := &v.nodes[i]
	if !n.placeable {
		v.expel(i)
		return
	}
	key := classKey{n.chassis, n.row.MilliCores, n.row.Memory, n.room()}
	if n.class != nil && n.class.key == key {
		return
	}
	v.expel(i)
	c := v.classes[key]
	if c == nil {
		c = v.newClass(key, n.row)
	}
	n.class = c
	if k := len(c.nodes); k == 0 || c.nodes[k-1] < i {
		c.nodes = append(c.nodes, i)
	} else {
		at, _ := slices.BinarySearch(c.nodes, i)
		c.nodes = slices.Insert(c.nodes, at, i)
	}
	v.cpu.count(key.room.free, i, true)
	for _, share := range n.chassis.lanes {
		share.lane.count(key.room.free&share.slots, i, true)
	}
}

// count notes that a node has come to the lane with the given free slots, or has gone.
func (l *lane) count(free muster.SlotSet, i int32, come bool) {
	n := free.Count()
	l.levels[n].nodes.set(i, come)
	if come {
		l.free += n
	} else {
		l.free -= n
	}
}

func (v *View) newClass(key classKey, row *muster.Node) *class {
	var c *class
	if k := len(v.spare); k > 0 {
		c, v.spare = v.spare[k-1], v.spare[:k-1]
	} else {
		c = &class{}
	}
	c.key, c.row, c.valued = key, row, 0
	c.at = append(c.at[:0], make([]int32, 1+len(key.chassis.lanes))...)
	v.classes[key] = c
	v.cpu.put(c, key.room.free.Count(), &c.at[0])
	for i, share := range key.chassis.lanes {
		share.lane.put(c, (key.room.free & share.slots).Count(), &c.at[i+1])
	}
	return c
}

// expel takes a node out of its class, and the class out of the lanes when that was its last node.
func (v *View) expel(i int32) {
	n := &v.nodes[i]
	c := n.class
	if c == nil {
		return
	}
	n.class = nil
	if c.nodes[0] == i {
		c.nodes = c.nodes[1:]
	} else {
		at, _ := slices.BinarySearch(c.nodes, i)
		c.nodes = slices.Delete(c.nodes, at, at+1)
	}
	free := c.key.room.free
	v.cpu.count(free, i, false)
	for _, share := range c.key.chassis.lanes {
		share.lane.count(free&share.slots, i, false)
	}
	if len(c.nodes) > 0 {
		return
	}
	delete(v.classes, c.key)
	if moved := v.cpu.drop(free.Count(), c.at[0]); moved != nil {
		moved.at[0] = c.at[0]
	}
	for k, share := range c.key.chassis.lanes {
		if moved := share.lane.drop((free & share.slots).Count(), c.at[k+1]); moved != nil {
			*moved.position(share.lane) = c.at[k+1]
		}
	}
	c.row = nil
	v.spare = append(v.spare, c)
}

// chassisOf finds or makes the chassis of a node's GPUs.
func (v *View) chassisOf(gpus []muster.GPU) *chassis {
	v.chassisKey = v.chassisKey[:0]
	for i := range gpus {
		v.chassisKey = append(v.chassisKey, gpus[i].Model...)
		v.chassisKey = append(v.chassisKey, 0)
		for shift := 0; shift < 64; shift += 8 {
			v.chassisKey = append(v.chassisKey, byte(gpus[i].Memory>>shift))
		}
	}
	if c := v.byGPUs[string(v.chassisKey)]; c != nil {
		return c
	}
	c := &chassis{id: len(v.chassis), gpus: len(gpus)}
	for slot := range gpus {
		device := muster.GPU{Model: gpus[slot].Model, Memory: gpus[slot].Memory}
		at := slices.IndexFunc(c.parts, func(p part) bool { return p.gpu == device })
		if at < 0 {
			at = len(c.parts)
			c.parts = append(c.parts, part{gpu: device})
		}
		c.parts[at].slots = c.parts[at].slots.With(slot)
	}
	for _, p := range c.parts {
		l := v.lane(p.gpu.Model)
		at := sort.Search(len(c.lanes), func(i int) bool { return c.lanes[i].lane.id >= l.id })
		if at == len(c.lanes) || c.lanes[at].lane != l {
			c.lanes = slices.Insert(c.lanes, at, laneShare{lane: l})
		}
		c.lanes[at].slots |= p.slots
	}
	v.chassis = append(v.chassis, c)
	v.byGPUs[string(v.chassisKey)] = c
	return c
}

func (v *View) lane(model string) *lane {
	for _, l := range v.lanes {
		if l.model == model {
			return l
		}
	}
	l := &lane{id: 1 + len(v.lanes), model: model}
	v.lanes = append(v.lanes, l)
	return l
}
