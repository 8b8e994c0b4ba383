package wire

import "github.com/musterhpc/muster"

// NodeOf converts a node's row.
func NodeOf(n *muster.Node) *Node {
	return &Node{
		Id:         uint32(n.ID),
		Name:       n.Name,
		Address:    n.Address,
		Ip:         n.IP,
		Hardware:   n.Hardware,
		Boot:       n.Boot,
		Instance:   n.Instance,
		Session:    n.Session,
		Number:     n.Number,
		Epoch:      uint32(n.Epoch),
		Lost:       n.Lost,
		Reason:     n.Reason,
		Drain:      drainOf(&n.Drain),
		Labels:     labelsOf(n.Labels),
		MilliCores: int64(n.MilliCores),
		Memory:     int64(n.Memory),
		Gpus: listOf(n.GPUs, func(g *muster.GPU) *GPU {
			return &GPU{Uuid: g.UUID, Model: g.Model, Memory: int64(g.Memory), BusId: g.BusID, Health: uint32(g.Health), Reason: g.Reason}
		}),
		Fencing:   n.Fencing,
		Version:   n.Version,
		PortLow:   uint32(n.PortLow),
		PortHigh:  uint32(n.PortHigh),
		Cost:      n.Cost,
		FreeSlots: uint64(n.FreeSlots),
		Shared: listOf(n.Shared, func(s *muster.SlotShare) *SlotShare {
			return &SlotShare{Slot: int64(s.Slot), Held: int64(s.Held)}
		}),
		FreeMilliCores: int64(n.FreeMilliCores),
		FreeMemory:     int64(n.FreeMemory),
		Allocs:         int64(n.Allocs),
		NextPort:       uint32(n.NextPort),
		Removed:        n.Removed,
		SetLabels: listOf(n.SetLabels, func(l *muster.SetLabel) *SetLabel {
			return &SetLabel{Key: l.Key, Value: l.Value, HasOwn: l.HasOwn, Own: l.Own}
		}),
	}
}

// Domain converts back.
func (x *Node) Domain() (*muster.Node, error) {
	var d decoder
	n := d.node(x)
	return n, d.err
}

func (d *decoder) node(x *Node) *muster.Node {
	if !d.present("Node", x == nil) {
		return nil
	}
	d.known("Node", x.unknownFields)
	if len(x.Gpus) > muster.MaxSlots {
		d.fail("Node.gpus has %d elements; a node has at most %d GPUs in its life", len(x.Gpus), muster.MaxSlots)
		return nil
	}
	return &muster.Node{
		ID:         muster.NodeID(x.Id),
		Name:       x.Name,
		Address:    x.Address,
		IP:         x.Ip,
		Hardware:   x.Hardware,
		Boot:       x.Boot,
		Instance:   x.Instance,
		Session:    x.Session,
		Number:     x.Number,
		Epoch:      muster.Epoch(x.Epoch),
		Lost:       x.Lost,
		Reason:     x.Reason,
		Drain:      d.drain(x.Drain),
		Labels:     d.labels(x.Labels),
		MilliCores: muster.MilliCores(d.amount("Node.milli_cores", x.MilliCores)),
		Memory:     muster.Bytes(d.amount("Node.memory", x.Memory)),
		GPUs:       domainList(d, "Node.gpus", x.Gpus, d.gpu),
		Fencing:    x.Fencing,
		Version:    x.Version,
		PortLow:    d.port("Node.port_low", x.PortLow),
		PortHigh:   d.port("Node.port_high", x.PortHigh),
		Cost:       d.amount("Node.cost", x.Cost),
		FreeSlots:  muster.SlotSet(x.FreeSlots),
		Shared: domainList(d, "Node.shared", x.Shared, func(x *SlotShare) muster.SlotShare {
			d.known("SlotShare", x.unknownFields)
			return muster.SlotShare{Slot: d.count("SlotShare.slot", x.Slot), Held: muster.MilliGPUs(d.amount("SlotShare.held", x.Held))}
		}),
		FreeMilliCores: muster.MilliCores(d.balance("Node.free_milli_cores", x.FreeMilliCores)),
		FreeMemory:     muster.Bytes(d.balance("Node.free_memory", x.FreeMemory)),
		Allocs:         d.count("Node.allocs", x.Allocs),
		NextPort:       d.port("Node.next_port", x.NextPort),
		Removed:        x.Removed,
		SetLabels: domainList(d, "Node.set_labels", x.SetLabels, func(x *SetLabel) muster.SetLabel {
			d.known("SetLabel", x.unknownFields)
			return muster.SetLabel{Key: x.Key, Value: x.Value, HasOwn: x.HasOwn, Own: x.Own}
		}),
	}
}

// balance reads what is left of an amount: below zero when a machine came back smaller while tasks of its old size run.
func (d *decoder) balance(field string, v int64) int64 {
	if v < 0 {
		return -d.amount(field, -v)
	}
	return d.amount(field, v)
}

func (d *decoder) gpu(x *GPU) muster.GPU {
	d.known("GPU", x.unknownFields)
	return muster.GPU{
		UUID:   x.Uuid,
		Model:  x.Model,
		Memory: muster.Bytes(d.amount("GPU.memory", x.Memory)),
		BusID:  x.BusId,
		Health: enum(d, "GPU.health", x.Health, muster.GPULost),
		Reason: x.Reason,
	}
}

// drainOf gives nil for a node that is not draining.
func drainOf(dr *muster.Drain) *Drain {
	if *dr == (muster.Drain{}) {
		return nil
	}
	return &Drain{On: dr.On, Reason: dr.Reason, By: dr.By, Since: int64(dr.Since), Deadline: int64(dr.Deadline)}
}

func (d *decoder) drain(x *Drain) muster.Drain {
	if x == nil {
		return muster.Drain{}
	}
	d.known("Drain", x.unknownFields)
	return muster.Drain{
		On:       x.On,
		Reason:   x.Reason,
		By:       x.By,
		Since:    d.time("Drain.since", x.Since),
		Deadline: d.time("Drain.deadline", x.Deadline),
	}
}
