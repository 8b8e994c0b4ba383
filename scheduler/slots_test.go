package scheduler

import (
	"testing"

	"github.com/musterhpc/muster"
	"pgregory.net/rapid"
)

func set(slots ...int) muster.SlotSet {
	var s muster.SlotSet
	for _, slot := range slots {
		s = s.With(slot)
	}
	return s
}

func TestSlotsAreNeighboursAndKeepLargeBlocksWhole(t *testing.T) {
	for _, c := range []struct {
		story string
		free  muster.SlotSet
		n     int
		want  muster.SlotSet
	}{
		{"an empty node is filled from below", muster.SlotRange(8), 1, set(0)},
		{"a pair is aligned", set(1, 2, 3, 4, 5, 6, 7), 2, set(2, 3)},
		{"a single goes beside what is used", set(1, 2, 3, 4, 5, 6, 7), 1, set(1)},
		{"a pair leaves the free half alone", set(0, 1, 2, 3, 6, 7), 2, set(6, 7)},
		{"four take a half", set(1, 2, 3, 4, 5, 6, 7), 4, set(4, 5, 6, 7)},
		{"four without a free half take a run", set(2, 3, 4, 5, 7), 4, set(2, 3, 4, 5)},
		{"three take the shortest run that holds them", set(0, 1, 2, 3, 5, 6, 7), 3, set(5, 6, 7)},
		{"what is scattered is taken from below", set(0, 2, 4, 6), 3, set(0, 2, 4)},
		{"none for none", muster.SlotRange(8), 0, set()},
		{"all 64", muster.SlotRange(64), 64, muster.SlotRange(64)},
	} {
		t.Run(c.story, func(t *testing.T) {
			if got := chooseSlots(c.free, c.n); got != c.want {
				t.Errorf("took %s, want %s", got, c.want)
			}
		})
	}
}

func TestSlotsAreFreeAndAsManyAsAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := muster.SlotSet(rapid.Uint64().Draw(t, "free"))
		n := rapid.IntRange(0, free.Count()).Draw(t, "n")
		got := chooseSlots(free, n)
		if got.Minus(free) != 0 || got.Count() != n {
			t.Fatalf("took %s of %s, want %d", got, free, n)
		}
	})
}
