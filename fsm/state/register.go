package state

import (
	"fmt"

	"github.com/musterhpc/muster"
)

func (c *RegisterNode) check(s *State) *muster.Error {
	if err := checkMachine(&c.Node); err != nil {
		return err
	}
	n := &c.Node
	known := s.t.nodeNamed(n.Name)
	if known != nil && !known.Removed && c.Replaces != "" && known.Session != c.Replaces && known.Session != n.Session {
		return muster.Errorf(muster.KindUnavailable, "the worker on %s has begun another session since it said hello", n.Name)
	}
	if known != nil && known.Instance == n.Instance && n.Number != 0 && n.Number < known.Number {
		return muster.Errorf(muster.KindUnavailable, "the worker on %s said this hello before the one that began its session", n.Name)
	}
	if known != nil && known.Allocs > 0 {
		switch {
		case known.Hardware != n.Hardware:
			return muster.Errorf(muster.KindConflict, "%s is another machine, which holds %s", n.Name, allocations(known.Allocs)).
				WithHint("Give this one another name, wait until the other's leases have run out, or say that it is off: muster node fence %s", n.Name)
		case known.Boot == n.Boot && known.Instance != n.Instance:
			return muster.Errorf(muster.KindConflict, "another worker on %s, with another data directory, holds %s", n.Name,
				allocations(known.Allocs)).WithHint("They end with their leases; then this one may register")
		}
	}
	slots := 0
	if known != nil {
		slots = len(known.GPUs)
	}
	for i := range n.GPUs {
		uuid := n.GPUs[i].UUID
		owner, slot := s.t.nodeOfGPU(uuid)
		if owner != nil && (known == nil || owner.ID != known.ID) && !owner.Lost && owner.GPUs[slot].Health != muster.GPULost {
			return muster.Errorf(muster.KindConflict, "GPU %s of %s belongs to %s", uuid, n.Name, owner.Name).
				WithHint("A GPU belongs to one node that is alive: if %s is off, muster node fence %s", owner.Name, owner.Name)
		}
		if known == nil || slotOf(known.GPUs, uuid) < 0 {
			slots++
		}
	}
	if slots > muster.MaxSlots {
		return muster.Errorf(muster.KindInvalid, "%s has had %d GPUs in its life, more than the %d that a node has slots for",
			n.Name, slots, muster.MaxSlots).WithHint("Give the machine another name")
	}
	return nil
}

// checkMachine looks at what the state depends on.
func checkMachine(n *muster.Node) *muster.Error {
	switch {
	case n.Name == "":
		return muster.Errorf(muster.KindInvalid, "a node without a name")
	case n.MilliCores < 0 || n.Memory < 0:
		return muster.Errorf(muster.KindInvalid, "%s: cores or memory below zero", n.Name)
	case n.PortLow > n.PortHigh:
		return muster.Errorf(muster.KindInvalid, "%s: the range of ports %d to %d is empty", n.Name, n.PortLow, n.PortHigh)
	}
	seen := map[string]bool{}
	for i := range n.GPUs {
		uuid := n.GPUs[i].UUID
		if uuid == "" || seen[uuid] {
			return muster.Errorf(muster.KindInvalid, "%s: two GPUs with the UUID %q, or one without", n.Name, uuid)
		}
		seen[uuid] = true
	}
	return nil
}

func allocations(n int) string {
	if n == 1 {
		return "1 allocation"
	}
	return fmt.Sprintf("%d allocations", n)
}

func (c *RegisterNode) apply(s *State) Result {
	var n *muster.Node
	if known := s.t.nodeNamed(c.Node.Name); known != nil {
		n = s.node(known.ID)
	} else {
		n = s.addNode(c.Node.Name)
	}
	// An end that the worker wrote down is better known than what a new boot proves.
	for i := range c.Allocs {
		if c.Allocs[i].Phase == muster.AllocEnded {
			s.report(n.ID, &c.Allocs[i])
		}
	}
	if n.Hardware == c.Node.Hardware && n.Boot != c.Node.Boot {
		s.endAllOn(n, n.Name+" rebooted")
	}
	if n.Lost || n.Boot != c.Node.Boot || n.Instance != c.Node.Instance || n.Removed {
		s.noteNode(EventNodeRegistered, n, "", registered(n, &c.Node))
	}
	s.describeNode(n, &c.Node)

	result := Result{Node: n.ID}
	listed := make(map[muster.AllocID]bool, len(c.Allocs))
	for i := range c.Allocs {
		id := c.Allocs[i].ID
		s.report(n.ID, &c.Allocs[i])
		if a := s.t.allocs.get(id); !listed[id] && (a == nil || a.Node != n.ID || a.Phase == muster.AllocEnded) {
			result.Kill = append(result.Kill, id)
		}
		listed[id] = true
	}
	for _, id := range s.t.liveOn(n.ID) {
		a := s.t.allocs.get(id)
		placed := muster.Version{Epoch: id.Epoch, Index: a.PlacedAt}
		if !listed[id] && !c.Seen.Before(placed) {
			s.end(id, ending{class: muster.ClassNode, message: "the worker on " + n.Name + " lost it"})
		}
	}
	return result
}

// registered says what is new about a worker that registers.
func registered(n, told *muster.Node) string {
	switch {
	case n.Boot == "" || n.Removed:
		return "new"
	case n.Boot != told.Boot:
		return "its machine started anew"
	case n.Instance != told.Instance:
		return "with a new data directory"
	}
	return "it is back"
}

func (s *State) addNode(name string) *muster.Node {
	id := s.t.cluster.NextNode
	s.t.cluster.NextNode++
	s.t.nodeNames.add(nodeNameKey{name, id})
	s.changed.Nodes = append(s.changed.Nodes, id)
	return s.t.nodes.insert(id, muster.Node{ID: id, Name: name}, &s.w)
}

// describeNode takes over what a worker says of its machine, and counts anew what is free of it.
func (s *State) describeNode(n *muster.Node, told *muster.Node) {
	n.Address, n.IP, n.Hardware, n.Boot, n.Instance = told.Address, told.IP, told.Hardware, told.Boot, told.Instance
	n.Session, n.Number = told.Session, told.Number
	n.MilliCores, n.Memory, n.Fencing, n.Version = told.MilliCores, told.Memory, told.Fencing, told.Version
	n.LabelOver(told.Labels, n.SetLabels)
	n.PortLow, n.PortHigh, n.Cost = told.PortLow, told.PortHigh, told.Cost
	n.Epoch, n.Lost, n.Reason, n.Removed = s.t.cluster.Epoch, false, "", false
	for slot := range n.GPUs {
		s.t.gpus.drop(gpuKey{n.GPUs[slot].UUID, n.ID, slot})
	}
	n.GPUs = bindSlots(n.GPUs, told.GPUs)
	for slot := range n.GPUs {
		s.t.gpus.add(gpuKey{n.GPUs[slot].UUID, n.ID, slot})
	}
	n.FreeSlots, n.FreeMilliCores, n.FreeMemory, n.Shared = n.UsableSlots(), n.MilliCores, n.Memory, nil
	for _, id := range s.t.liveOn(n.ID) {
		a := s.t.allocs.get(id)
		if s.hasNodeAlone(a) && (a.MilliCores != n.MilliCores || a.Memory != n.Memory) {
			a = s.alloc(id)
			s.charge(s.t.jobs.get(a.Job), a, -1)
			a.MilliCores, a.Memory = n.MilliCores, n.Memory // what the machine has gained is not free either
			s.charge(s.t.jobs.get(a.Job), a, 1)
		}
		n.FreeSlots = n.FreeSlots.Minus(a.Slots)
		if a.Share > 0 {
			n.TakeShare(a.Slots.Slots()[0], a.Share)
		}
		n.FreeMilliCores -= a.MilliCores
		n.FreeMemory -= a.Memory
	}
	clear(s.feasible)
}

// hasNodeAlone says whether an allocation is of an exclusive rank.
func (s *State) hasNodeAlone(a *muster.Allocation) bool {
	return s.t.specs.get(s.t.jobs.get(a.Job).Spec).Spec.Groups[a.Group].Task.Resources.Exclusive
}

// bindSlots gives each GPU told of the slot that its UUID has had, or the next one. Those not told of are lost.
func bindSlots(known, told []muster.GPU) []muster.GPU {
	gpus := make([]muster.GPU, len(known), len(known)+len(told))
	copy(gpus, known)
	for slot := range gpus {
		if slotOf(told, gpus[slot].UUID) < 0 {
			gpus[slot].Health, gpus[slot].Reason = muster.GPULost, "no longer in the machine"
		}
	}
	for i := range told {
		gpu := told[i]
		if gpu.Health == muster.GPUHealthUnknown {
			gpu.Health = muster.GPUHealthy
		}
		if slot := slotOf(known, gpu.UUID); slot >= 0 {
			gpus[slot] = gpu
		} else {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

func slotOf(gpus []muster.GPU, uuid string) int {
	for slot := range gpus {
		if gpus[slot].UUID == uuid {
			return slot
		}
	}
	return -1
}
