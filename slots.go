package muster

import (
	"math/bits"
	"strconv"
	"strings"
)

// MaxSlots is how many GPU slots a node can have in its whole life: slots are bound to a UUID for ever.
const MaxSlots = 64

// SlotSet is a set of GPU slots of one node, a bit for each.
type SlotSet uint64

// SlotRange is the set of the slots 0 to n-1.
func SlotRange(n int) SlotSet {
	if n >= MaxSlots {
		return ^SlotSet(0)
	}
	return SlotSet(1)<<n - 1
}

// Has says whether slot is in the set.
func (s SlotSet) Has(slot int) bool { return s>>slot&1 == 1 }

// With is the set and slot.
func (s SlotSet) With(slot int) SlotSet { return s | 1<<slot }

// Minus is the set without those of other.
func (s SlotSet) Minus(other SlotSet) SlotSet { return s &^ other }

// Count is the number of slots in the set.
func (s SlotSet) Count() int { return bits.OnesCount64(uint64(s)) }

// Lowest is the subset of the n lowest slots, or all of them when there are fewer.
func (s SlotSet) Lowest(n int) SlotSet {
	var out SlotSet
	for ; n > 0 && s != 0; n-- {
		bit := s & -s
		out |= bit
		s &^= bit
	}
	return out
}

// Slots lists the slots in ascending order.
func (s SlotSet) Slots() []int {
	out := make([]int, 0, s.Count())
	for ; s != 0; s &= s - 1 {
		out = append(out, bits.TrailingZeros64(uint64(s)))
	}
	return out
}

// String prints the slots: "0,1,5".
func (s SlotSet) String() string {
	var b strings.Builder
	for i, slot := range s.Slots() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(slot))
	}
	return b.String()
}
