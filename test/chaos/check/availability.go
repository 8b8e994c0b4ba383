package check

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/musterhpc/muster"
)

// What may be expected of a cluster: while a majority is up and its links are no worse than this, submissions are
// acknowledged again within longestGap.
const (
	longestGap = 5 * time.Second
	worstLoss  = 0.02
	worstDelay = 50 * time.Millisecond
)

// gap is a time in which a client was submitting and no submission was acknowledged.
type gap struct{ from, to Instant }

func (g gap) length() time.Duration { return max(0, g.to.Sub(g.from)) }

// Availability: no longer than 5 s passes without an acknowledged submission while one and the same majority of servers is up,
// reached by clients, and its links lose at most 2 % and delay at most 50 ms.
func Availability(h *History) []Violation {
	c := complaints{checker: "availability"}
	worst, set := h.longestJudgedGap()
	if worst.length() > longestGap {
		c.add(worst.from, "no submission was acknowledged from %s to %s (%v), though %v were up and well connected all that time", h.at(worst.from),
			h.at(worst.to), worst.length().Round(time.Millisecond), set)
	}
	return c.found
}

// gaps gives the times between acknowledged submissions in which a submission was being tried, oldest first.
func (h *History) gaps() []gap {
	var submits []*Call
	for _, call := range h.byEnd() {
		if call.Op == OpSubmit && (call.Outcome != Refused || call.Refusal == muster.KindUnavailable) {
			submits = append(submits, call)
		}
	}
	// The earliest begin of a call and all that ended after it: from then on somebody was trying.
	trying := make([]Instant, len(submits))
	for i := len(submits) - 1; i >= 0; i-- {
		trying[i] = submits[i].Start
		if i+1 < len(submits) {
			trying[i] = min(trying[i], trying[i+1])
		}
	}
	var out []gap
	var last Instant // acknowledged
	next := 0        // the first call that ended after that
	for i, call := range submits {
		if call.Outcome == OK || i == len(submits)-1 {
			out = append(out, gap{max(last, trying[next]), call.End})
			last, next = call.End, i+1
		}
	}
	return out
}

func (h *History) longestGap() gap {
	var longest gap
	for _, g := range h.gaps() {
		if g.length() > longest.length() {
			longest = g
		}
	}
	return longest
}

// longestJudgedGap is the longest part of a gap over which one majority was good.
func (h *History) longestJudgedGap() (longest gap, majority []string) {
	gaps := h.gaps()
	n := len(h.Run.Servers)
	for set := uint(1); set < 1<<n; set++ {
		if bits.OnesCount(set) != n/2+1 {
			continue // a larger good set has a good one of just this size
		}
		var names []string
		for i, server := range h.Run.Servers {
			if set>>i&1 == 1 {
				names = append(names, server)
			}
		}
		windows := h.goodTimes(names)
		for _, g := range gaps {
			i, _ := slices.BinarySearchFunc(windows, g.from, func(w gap, from Instant) int { return cmp.Compare(w.to, from) })
			for ; i < len(windows) && windows[i].from < g.to; i++ {
				part := gap{max(g.from, windows[i].from), min(g.to, windows[i].to)}
				if part.length() > longest.length() {
					longest, majority = part, names
				}
			}
		}
	}
	return longest, majority
}

// goodTimes gives the times, as long as they can be, in which the servers of a set were up and well connected.
func (h *History) goodTimes(set []string) []gap {
	edges := []Instant{h.Run.Start, h.Run.End}
	for i := range h.Faults {
		edges = append(edges, h.Faults[i].Start, h.Faults[i].End)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	var out []gap
	for i := 1; i < len(edges); i++ {
		from, to := edges[i-1], edges[i]
		var active []*Fault
		for k := range h.Faults {
			if f := &h.Faults[k]; f.Start <= from && f.End >= to {
				active = append(active, f)
			}
		}
		switch {
		case !h.good(set, active):
		case len(out) > 0 && out[len(out)-1].to == from:
			out[len(out)-1].to = to
		default:
			out = append(out, gap{from, to})
		}
	}
	return out
}

// good says whether a set is up and well connected under these faults. Servers outside of it may be gone or cut off in any
// way; where their links to it are merely bad, or the clients' links are, nothing is judged: one of them may be leading.
func (h *History) good(set []string, active []*Fault) bool {
	down := map[string]bool{}
	for _, f := range active {
		for _, server := range f.Down {
			down[server] = true
		}
	}
	reached := false
	for _, a := range set {
		if down[a] {
			return false
		}
		for _, b := range h.Run.Servers {
			if a == b || down[b] {
				continue
			}
			inside := slices.Contains(set, b)
			for _, l := range []Link{quality(a, b, active), quality(b, a, active)} {
				if inside && !l.good() || !inside && !l.good() && !l.cut() {
					return false
				}
			}
		}
		to, back := quality("clients", a, active), quality(a, "clients", active)
		if !to.good() && !to.cut() || !back.good() && !back.cut() {
			return false
		}
		reached = reached || to.good() && back.good()
	}
	return reached
}

func (l Link) good() bool { return l.Loss <= worstLoss && l.Delay <= worstDelay }
func (l Link) cut() bool  { return l.Loss >= 1 }

// quality is one direction of a connection under several faults at once.
func quality(from, to string, active []*Fault) Link {
	out := Link{From: from, To: to}
	for _, f := range active {
		for _, l := range f.Links {
			if (l.From == from || l.From == "*") && (l.To == to || l.To == "*") {
				out.Loss = 1 - (1-out.Loss)*(1-l.Loss)
				out.Delay += l.Delay
			}
		}
	}
	return out
}

// longestRecovery is the longest time from the end of a fault to the next acknowledged submission, and of which fault.
func (h *History) longestRecovery() (time.Duration, string) {
	var acknowledged []Instant
	for _, call := range h.byEnd() {
		if call.Op == OpSubmit && call.Outcome == OK {
			acknowledged = append(acknowledged, call.End)
		}
	}
	var longest time.Duration
	var kind string
	for i := range h.Faults {
		f := &h.Faults[i]
		if k, _ := slices.BinarySearch(acknowledged, f.End); k < len(acknowledged) && acknowledged[k].Sub(f.End) >= longest {
			longest, kind = acknowledged[k].Sub(f.End), f.Kind
		}
	}
	return longest, kind
}
