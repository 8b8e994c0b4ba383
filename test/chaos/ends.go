//go:build chaos

package chaos

import (
	"slices"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/test/chaos/check"
)

// goneBy gives when what an end says is gone was gone. An agent that begins anew finds ends, and says when it found them: a power
// cut, or the death of its supervisors, in between was the end. What outlived that is known by its own lines.
func goneBy(cuts []check.Instant, started check.Instant, end check.Event) check.Instant {
	if end.Class != muster.ClassNode.String() {
		return end.Gone
	}
	for _, cut := range cuts {
		if started < cut && cut < end.Gone {
			return cut
		}
	}
	return end.Gone
}

// withoutTheOthers leaves out that a machine gave up what it never started, while another one with its name ran it: a node is
// one of them after the other.
func withoutTheOthers(events []check.Event) []check.Event {
	type start struct{ alloc, machine string }
	starts, started := map[start]bool{}, map[string]bool{}
	for _, e := range events {
		if e.Kind == check.Intent {
			starts[start{e.Alloc, e.Machine}], started[e.Alloc] = true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(events), func(e check.Event) bool {
		return e.Kind == check.Ended && e.Class == muster.ClassNode.String() && started[e.Alloc] && !starts[start{e.Alloc, e.Machine}]
	})
}
