package check

import (
	"cmp"
	"maps"
	"slices"
)

// OneOwner: no GPU slot is in two allocations at one time, in no worker's journal and in no answer of the API.
func OneOwner(h *History) []Violation {
	c := complaints{checker: "one owner"}
	type slot struct {
		machine string
		number  int
	}
	held := map[slot][]*life{}
	for _, l := range h.lives() {
		if l.begin() > 0 {
			for _, n := range l.slots {
				held[slot{l.machine, n}] = append(held[slot{l.machine, n}], l)
			}
		}
	}
	for _, s := range slices.SortedFunc(maps.Keys(held), func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.machine, b.machine), cmp.Compare(a.number, b.number))
	}) {
		slices.SortStableFunc(held[s], func(a, b *life) int { return cmp.Compare(a.begin(), b.begin()) })
		var latest *life
		for _, l := range held[s] {
			if latest != nil && l.begin() < latest.end() {
				c.add(l.begin(), "GPU slot %d of %s was given to %s at %s while %s still held it, until %s", s.number, s.machine, l, h.at(l.begin()),
					latest, h.at(latest.end()))
			}
			if latest == nil || l.end() > latest.end() {
				latest = l
			}
		}
	}
	for i := range h.Calls {
		call := &h.Calls[i]
		owner := map[slot]string{}
		for k := range call.Seen {
			if terminal(call.Seen[k].State) {
				continue
			}
			for _, r := range call.Seen[k].Ranks {
				for _, n := range r.Slots {
					key := slot{r.Node, n}
					if r.State == "ended" {
						continue
					}
					if other, taken := owner[key]; taken && other != r.Alloc {
						c.add(call.End, "at version %s GPU slot %d of %s is in allocations %s and %s (%s of %s at %s)", call.Version, n, r.Node, other,
							r.Alloc, call.Op, call.Client, h.at(call.End))
					}
					owner[key] = r.Alloc
				}
			}
		}
	}
	return c.found
}
