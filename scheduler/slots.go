package scheduler

import (
	"math/bits"

	"github.com/musterhpc/muster"
)

// chooseSlots takes n of the free slots, neighbours where it can. Slots of one half, quarter, … of a node usually share a
// switch and a NUMA domain, so a power of two comes from an aligned block, and from the block whose larger blocks are broken
// already; any other number from the shortest run that holds it. There are at least n free slots.
func chooseSlots(free muster.SlotSet, n int) muster.SlotSet {
	if n == 0 {
		return 0
	}
	if n&(n-1) == 0 {
		if block, ok := alignedBlock(free, n); ok {
			return block
		}
	}
	if run, ok := shortestRun(free, n); ok {
		return run
	}
	return free.Lowest(n)
}

// alignedBlock finds the free aligned block of n slots whose largest free aligned block around it is smallest; lowest first.
func alignedBlock(free muster.SlotSet, n int) (muster.SlotSet, bool) {
	var best muster.SlotSet
	smallest := muster.MaxSlots + 1
	for at := 0; at+n <= muster.MaxSlots && free>>at != 0; at += n {
		block := muster.SlotRange(n) << at
		if free&block != block {
			continue
		}
		around := n
		for around < muster.MaxSlots {
			wider := muster.SlotRange(2*around) << (at &^ (2*around - 1))
			if free&wider != wider {
				break
			}
			around *= 2
		}
		if around < smallest {
			best, smallest = block, around
		}
	}
	return best, best != 0
}

// shortestRun finds n slots at the low end of the shortest run of free slots that holds them; lowest first.
func shortestRun(free muster.SlotSet, n int) (muster.SlotSet, bool) {
	var best muster.SlotSet
	shortest := muster.MaxSlots + 1
	for rest := uint64(free); rest != 0; {
		at := bits.TrailingZeros64(rest)
		length := bits.TrailingZeros64(^(rest >> at))
		if length >= n && length < shortest {
			best, shortest = muster.SlotRange(n)<<at, length
		}
		rest &^= uint64(muster.SlotRange(length) << at)
	}
	return best, best != 0
}
