package scheduler

import "slices"

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

// scope says which nodes a job may not use for reasons that are no part of its shape.
type scope struct {
	out   nodeSet // suspect
	avoid []int32 // blamed for an earlier attempt; a few
}

func (s *scope) allows(i int32) bool { return !s.out.has(i) && !slices.Contains(s.avoid, i) }

func (s *scope) open() bool { return len(s.out) == 0 && len(s.avoid) == 0 }
