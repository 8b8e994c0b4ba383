package muster

import (
	"slices"
	"strings"
	"time"
)

// Node is the replicated row of a machine with a worker.
type Node struct {
	ID       NodeID
	Name     string
	Address  string // host:port of the worker's RPC listener
	IP       string // that other ranks reach it by
	Hardware string // DMI or machine id, or the agent file's name where simulated: a node id belongs to one machine
	Boot     string // boot id
	Instance string // of the worker's data directory
	Session  string // of its registration: each stream to a server begins with a new one
	Number   uint64 // of that session: it grows with each of one data directory, over reboots too; 0 = not told
	Epoch    Epoch  // in which it last sent its complete list; placeable only when it is the cluster's
	Lost     bool   // its leases ran out, or it was fenced; until it registers again
	Reason   string // why it is lost
	Drain    Drain
	Removed  bool // an operator said that it is gone for good: kept for what ran there, until it registers again

	Labels     []Label    // those that hold, sorted by key
	SetLabels  []SetLabel // set by an operator, over those of the agent's file; sorted by key
	MilliCores MilliCores
	Memory     Bytes
	GPUs       []GPU  // by slot
	Fencing    string // "strong", or "weak: REASON"
	Version    string // of the worker
	PortLow    uint16 // range of ports for tasks
	PortHigh   uint16
	Cost       int64 // micro-units of money an hour, for the whole node

	// Derived in the same transaction as the allocations they count, and compared with a recount by CheckInvariants.
	FreeSlots      SlotSet     // of which nothing is held
	Shared         []SlotShare // slots of which shares are held, by slot
	FreeMilliCores MilliCores
	FreeMemory     Bytes
	Allocs         int // that have not ended
	NextPort       uint16
}

// SetLabel is a label that an operator has set on a node. It wins over the one of the agent's file.
type SetLabel struct {
	Key    string
	Value  string
	HasOwn bool   // the agent's file has a label of this key, too:
	Own    string // so
}

// Drain says that nothing new may start on a node.
type Drain struct {
	On       bool
	Reason   string
	By       string
	Since    Time
	Deadline Time // when what still runs is stopped; 0 = never
}

// GPU is a device of a node, bound to its slot for ever.
type GPU struct {
	UUID   string
	Model  string // the device's name: "NVIDIA H100 80GB HBM3"
	Memory Bytes
	BusID  string
	Health GPUHealth
	Reason string
}

// State is what the replicated state alone says of the node. The leader adds suspicion.
func (n *Node) State() NodeState {
	switch {
	case n.Lost:
		return NodeLost
	case n.Drain.On && n.Allocs == 0:
		return NodeDrained
	case n.Drain.On:
		return NodeDraining
	default:
		return NodeReady
	}
}

// Label gives the value of a label.
func (n *Node) Label(key string) (string, bool) {
	for _, l := range n.Labels {
		if l.Key == key {
			return l.Value, true
		}
	}
	return "", false
}

// MaxLabels bounds the labels that an operator sets on a node.
const MaxLabels = 64

// CheckLabel says what is wrong with a label of a node, or nil.
func CheckLabel(l Label) *Error {
	if !ValidLabelKey(l.Key) {
		return Errorf(KindInvalid, "%q can't be the key of a label", l.Key).
			WithHint("A key is at most 63 letters, digits and _ . / -, and begins with a letter")
	}
	if len(l.Value) > 256 || strings.ContainsAny(l.Value, "\n\x00") {
		return Errorf(KindInvalid, "the value of the label %s is not one line of at most 256 bytes", l.Key)
	}
	return nil
}

// OwnLabels are the labels that the agent's file gives, without what was set over them.
func (n *Node) OwnLabels() []Label {
	var own []Label
	set := n.SetLabels
	for _, l := range n.Labels {
		if !slices.ContainsFunc(set, func(s SetLabel) bool { return s.Key == l.Key }) {
			own = append(own, l)
		}
	}
	for _, s := range set {
		if s.HasOwn {
			own = append(own, Label{Key: s.Key, Value: s.Own})
		}
	}
	return own
}

// LabelOver makes the node's labels of those of its agent's file and of what was set over them. Both lists are replaced, not
// changed.
func (n *Node) LabelOver(own []Label, set []SetLabel) {
	labels := slices.Clone(own)
	if len(set) == 0 {
		set = nil
	}
	set = slices.Clone(set)
	for i := range set {
		s := &set[i]
		s.HasOwn, s.Own = false, ""
		at := slices.IndexFunc(labels, func(l Label) bool { return l.Key == s.Key })
		if at < 0 {
			labels = append(labels, Label{Key: s.Key, Value: s.Value})
			continue
		}
		s.HasOwn, s.Own, labels[at].Value = true, labels[at].Value, s.Value
	}
	slices.SortFunc(labels, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	slices.SortFunc(set, func(a, b SetLabel) int { return strings.Compare(a.Key, b.Key) })
	n.Labels, n.SetLabels = labels, set
}

// UsableSlots is the set of slots whose GPU may get new work.
func (n *Node) UsableSlots() SlotSet {
	var s SlotSet
	for slot := range n.GPUs {
		if h := n.GPUs[slot].Health; h == GPUHealthy || h == GPUDegraded {
			s = s.With(slot)
		}
	}
	return s
}

// Share is what a rank gets of a node's cores and memory when it names GPUs and no amount: its GPUs' part of the cores, and
// of 95 % of the memory. Without GPUs a rank gets one core and 4 GiB.
func (n *Node) Share(r *Resources) (MilliCores, Bytes) {
	cores, memory := r.MilliCores, r.Memory
	if r.Exclusive {
		return n.MilliCores, n.Memory
	}
	total := len(n.GPUs)
	if cores == 0 {
		cores = 1000
		if r.GPUs > 0 && total > 0 {
			cores = n.MilliCores * MilliCores(r.GPUs) / MilliCores(total)
			if r.Share > 0 {
				cores = cores * MilliCores(r.Share) / MilliCores(WholeGPU)
			}
		}
	}
	if memory == 0 {
		memory = 4 * GiB
		if r.GPUs > 0 && total > 0 {
			memory = n.Memory / 100 * 95 / Bytes(total) * Bytes(r.GPUs)
			if r.Share > 0 {
				memory = memory / Bytes(WholeGPU) * Bytes(r.Share)
			}
		}
	}
	return cores, memory
}

// Shape is what placement looks at in a job. Jobs of equal shape are tried once for all of them.
type Shape struct {
	Groups []ShapeGroup
}

// ShapeGroup is what placement looks at in a group.
type ShapeGroup struct {
	Count       int
	Within      string
	Prefer      string
	Patience    time.Duration
	Constraints []Constraint
	Resources   Resources
}

// ShapeOf gives the shape of a spec.
func ShapeOf(s *JobSpec) Shape {
	shape := Shape{Groups: make([]ShapeGroup, len(s.Groups))}
	for i := range s.Groups {
		g := &s.Groups[i]
		shape.Groups[i] = ShapeGroup{Count: g.Count, Within: g.Within, Prefer: g.Prefer, Patience: g.Patience,
			Constraints: g.Constraints, Resources: g.Task.Resources}
	}
	return shape
}

// Lease bounds: how long a worker may go on without hearing from the leader.
const (
	DefaultLease = 60 * time.Second
	MinLease     = 10 * time.Second
)
