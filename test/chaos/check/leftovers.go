package check

import (
	"fmt"
	"maps"
	"slices"
)

// NothingOutlives: no process runs when its allocation has ended, be it that its worker wrote so, that the API showed so, or
// that it was found when all was quiet.
func NothingOutlives(h *History) []Violation {
	c := complaints{checker: "nothing outlives"}
	alive := map[string]bool{}
	for i := range h.Final.Jobs {
		for k := range h.Final.Jobs[i].Ranks {
			r := &h.Final.Jobs[i].Ranks[k]
			alive[r.Alloc] = r.State != "ended" && !terminal(h.Final.Jobs[i].State)
		}
	}
	jobs := h.jobs()
	for i := range h.Leftovers {
		l := &h.Leftovers[i]
		job := jobs[l.Job]
		known, isAlive := false, false
		if l.Alloc != "" {
			isAlive, known = alive[l.Alloc]
		}
		if !known {
			isAlive = job != nil && !terminal(job.State) && l.Attempt == job.Attempt
		}
		if !isAlive {
			state := "which the state doesn't know"
			if job != nil {
				state = fmt.Sprintf("which is %s in attempt %d", job.State, job.Attempt)
			}
			c.add(l.Time, "process %d on %s (%s) is left of allocation %q, rank %d of attempt %d of job %d, %s", l.PID, l.Machine, l.Command,
				l.Alloc, l.Rank, l.Attempt, l.Job, state)
		}
	}
	type verdict struct {
		when Instant
		who  string
	}
	over := map[tenure]verdict{}
	judge := func(t tenure, when Instant, who string) {
		if v, known := over[t]; !known || when < v.when {
			over[t] = verdict{when, who}
		}
	}
	for _, l := range h.lives() {
		if len(l.ends) > 0 {
			judge(l.tenure, l.end(), "its worker")
		}
	}
	beats := h.beats()
	attempts := map[place][]tenure{}
	for t := range beats {
		attempts[t.place] = append(attempts[t.place], t)
	}
	groups := map[place][]place{} // by job alone
	for p := range attempts {
		groups[place{job: p.job}] = append(groups[place{job: p.job}], p)
	}
	for _, call := range h.byEnd() {
		who := fmt.Sprintf("%s of %s", call.Op, call.Client)
		for k := range call.Seen {
			seen := &call.Seen[k]
			for _, p := range groups[place{job: seen.Job}] {
				for _, t := range attempts[p] {
					if terminal(seen.State) || t.attempt < seen.Attempt {
						judge(t, call.End, who)
					}
				}
			}
			for _, r := range seen.Ranks {
				if r.State == "ended" {
					judge(tenure{place{seen.Job, r.Group, r.Rank}, r.Attempt}, call.End, who)
				}
			}
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(over), compareTenures) {
		v := over[t]
		for _, b := range beats[t] {
			if b.Time > v.when && !h.stoodStill(machineOf(b.Machine, b.Node), v.when, b.Time) {
				c.add(b.Time, "the task of %s (pid %d on %s) wrote at %s, after %s had said at %s that it was over", t, b.PID, b.Node, h.at(b.Time),
					v.who, h.at(v.when))
				break
			}
		}
	}
	return c.found
}
