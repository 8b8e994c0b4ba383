package check

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhpc/muster"
)

// Gangs: a gang holds all its ranks' resources or none, no rank starts before all are ready, and none succeeds without all
// having started.
func Gangs(h *History) []Violation {
	c := complaints{checker: "gangs"}
	count := map[muster.JobID]int{}
	for i := range h.Calls {
		call := &h.Calls[i]
		for k := range call.Seen {
			seen := &call.Seen[k]
			count[seen.Job] = max(count[seen.Job], seen.Count)
			phase, _ := muster.ParseJobPhase(seen.State)
			if phase != muster.JobPreparing && phase != muster.JobRunning || seen.Count == 0 || len(seen.Ranks) == 0 {
				continue
			}
			placed := map[place]bool{}
			for _, r := range seen.Ranks {
				if r.Attempt == seen.Attempt {
					placed[place{seen.Job, r.Group, r.Rank}] = true
				}
			}
			if len(placed) != seen.Count {
				c.add(call.End, "at version %s job %d is %s in attempt %d with %d of its %d ranks placed (%s of %s at %s)", call.Version, seen.Job,
					seen.State, seen.Attempt, len(placed), seen.Count, call.Op, call.Client, h.at(call.End))
			}
		}
	}
	for i := range h.Final.Jobs {
		count[h.Final.Jobs[i].ID] = max(count[h.Final.Jobs[i].ID], h.Final.Jobs[i].Count)
	}
	type attempt struct {
		job    muster.JobID
		number uint32
	}
	ranks := map[attempt][]*life{}
	for _, l := range h.lives() {
		ranks[attempt{l.job, l.attempt}] = append(ranks[attempt{l.job, l.attempt}], l)
	}
	final := h.jobs()
	for _, a := range slices.SortedFunc(maps.Keys(ranks), func(a, b attempt) int {
		return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.number, b.number))
	}) {
		if count[a.job] < 2 {
			continue
		}
		begun := 0
		var barrier Instant // when the last rank was ready
		ready := 0
		for _, l := range ranks[a] {
			if l.ready > 0 {
				ready++
				barrier = max(barrier, l.ready)
			}
		}
		for _, l := range ranks[a] {
			begin := l.begin()
			if begin == 0 {
				continue
			}
			begun++
			switch {
			case !h.recordsReady():
			case ready < count[a.job]:
				c.add(begin, "%s started at %s with only %d of the %d ranks of attempt %d ever ready", l, h.at(begin), ready, count[a.job], a.number)
			case begin < barrier:
				c.add(begin, "%s started at %s, before the last rank of attempt %d was ready at %s", l, h.at(begin), a.number, h.at(barrier))
			}
		}
		if job := final[a.job]; job != nil && job.State == "succeeded" && job.Attempt == a.number && begun < count[a.job] {
			c.add(0, "job %d succeeded in attempt %d, of which only %d of %d ranks ever started", a.job, a.number, begun, count[a.job])
		}
	}
	return c.found
}

// recordsReady says whether the run wrote down when ranks were ready; without it barriers can't be judged.
func (h *History) recordsReady() bool {
	return slices.ContainsFunc(h.Events, func(e Event) bool { return e.Kind == Ready })
}
