package muster

import "slices"

// WholeGPU is all of a GPU, of which several allocations may hold shares.
const WholeGPU MilliGPUs = 1000

// SlotShare is how much of a slot's GPU is held by allocations that have a share of it.
type SlotShare struct {
	Slot int
	Held MilliGPUs // 1 to 1000
}

// TakeShare gives out a share of a slot: it is free for nobody who wants all of it. The list of shares is replaced, not changed.
func (n *Node) TakeShare(slot int, share MilliGPUs) {
	n.FreeSlots = n.FreeSlots.Minus(SlotSet(0).With(slot))
	n.Shared = AddShare(n.Shared, slot, share)
}

// ReturnShare takes a share back. With the last one the slot is whole again.
func (n *Node) ReturnShare(slot int, share MilliGPUs) {
	n.Shared = AddShare(n.Shared, slot, -share)
	if HeldShare(n.Shared, slot) == 0 {
		n.FreeSlots |= SlotSet(0).With(slot) & n.UsableSlots()
	}
}

// HeldShare is how much of a slot the list says is held.
func HeldShare(list []SlotShare, slot int) MilliGPUs {
	for _, s := range list {
		if s.Slot == slot {
			return s.Held
		}
	}
	return 0
}

// AddShare gives a list with more, or less, of a slot held: sorted by slot, without slots of which nothing is held.
func AddShare(list []SlotShare, slot int, share MilliGPUs) []SlotShare {
	at, found := slices.BinarySearchFunc(list, slot, func(s SlotShare, slot int) int { return s.Slot - slot })
	if !found {
		out := make([]SlotShare, 0, len(list)+1)
		return append(append(append(out, list[:at]...), SlotShare{slot, share}), list[at:]...)
	}
	if list[at].Held+share == 0 {
		if len(list) == 1 {
			return nil
		}
		return slices.Delete(slices.Clone(list), at, at+1)
	}
	out := slices.Clone(list)
	out[at].Held += share
	return out
}

// MilliGPUs is how much of GPUs an allocation holds.
func (a *Allocation) MilliGPUs() MilliGPUs {
	if a.Share > 0 {
		return a.Share
	}
	return MilliGPUs(a.Slots.Count()) * WholeGPU
}
