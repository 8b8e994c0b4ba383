package scheduler

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster"
	"pgregory.net/rapid"
)

func TestJobListIsASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list jobList
		var want []muster.JobID
		// A span below and above a block's size, so that blocks split and vanish.
		highest := rapid.SampledFrom([]uint64{8, 600, 5000}).Draw(t, "highest")
		for _, run := range rapid.SliceOfN(rapid.Custom(drawRun), 1, 12).Draw(t, "runs") {
			for k := range run.length {
				id := muster.JobID((run.from+k*run.step)%highest + 1)
				at, found := slices.BinarySearch(want, id)
				switch {
				case run.add && !found:
					want = slices.Insert(want, at, id)
				case !run.add && found:
					want = slices.Delete(want, at, at+1)
				}
				if run.add {
					list.add(id)
				} else {
					list.remove(id)
				}
			}
		}
		if list.len != len(want) {
			t.Fatalf("length %d, want %d", list.len, len(want))
		}
		if got := list.all(); !slices.Equal(got, want) {
			t.Fatalf("holds %v, want %v", got, want)
		}
		probe := muster.JobID(rapid.Uint64Range(0, highest+1).Draw(t, "probe"))
		at, _ := slices.BinarySearch(want, probe)
		count, below := list.below(probe, 3, nil)
		expected := slices.Clone(want[max(0, at-3):at])
		slices.Reverse(expected)
		if count != at || !slices.Equal(below, expected) {
			t.Fatalf("below %d: %d and %v, want %d and %v", probe, count, below, at, expected)
		}
	})
}

type run struct {
	from, length, step uint64
	add                bool
}

func drawRun(t *rapid.T) run {
	return run{rapid.Uint64Range(0, 5000).Draw(t, "from"), rapid.Uint64Range(1, 2000).Draw(t, "length"),
		rapid.Uint64Range(1, 7).Draw(t, "step"), rapid.Bool().Draw(t, "add")}
}

// all lists the numbers by after, as a pass does.
func (l *jobList) all() []muster.JobID {
	var out []muster.JobID
	if l.len == 0 {
		return out
	}
	for id, ok := l.first(), true; ok; id, ok = l.after(id) {
		out = append(out, id)
	}
	return out
}
