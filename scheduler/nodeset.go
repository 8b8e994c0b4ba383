package scheduler

import (
	"math/bits"
	"slices"
)

// nodeSet is a set of positions in View.nodes, a bit for each.
type nodeSet []uint64

func (s nodeSet) has(i int32) bool { return int(i>>6) < len(s) && s[i>>6]>>(i&63)&1 == 1 }

func (s *nodeSet) set(i int32, in bool) {
	for int(i>>6) >= len(*s) {
		*s = append(*s, 0)
	}
	if in {
		(*s)[i>>6] |= 1 << (i & 63)
	} else {
		(*s)[i>>6] &^= 1 << (i & 63)
	}
}

// all yields the members, ascending.
func (s nodeSet) all(yield func(int32) bool) {
	for k, word := range s {
		for ; word != 0; word &= word - 1 {
			if !yield(int32(k<<6 + bits.TrailingZeros64(word))) {
				return
			}
		}
	}
}

// scope says which nodes a job may not use for reasons that are no part of its shape.
type scope struct {
	out   nodeSet // suspect
	avoid []int32 // blamed for an earlier attempt; a few
	wide  bool    // a gang may use more than the one domain that it would like
}

func (s *scope) allows(i int32) bool { return !s.out.has(i) && !slices.Contains(s.avoid, i) }

func (s *scope) open() bool { return len(s.out) == 0 && len(s.avoid) == 0 }
