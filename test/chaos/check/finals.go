package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/musterhpc/muster"
)

func ending(class string, code, signal int) string {
	switch {
	case signal > 0:
		return fmt.Sprintf("class %q, signal %d", class, signal)
	case class == "":
		return fmt.Sprintf("exit code %d", code)
	}
	return fmt.Sprintf("class %q, exit code %d", class, code)
}

// sighting is a job, or an allocation, seen ended.
type sighting struct {
	when Instant
	what string
	how  string
}

// EndsStay: the end of a job or of an allocation never changes once a read has shown it, stale reads and the state at the
// end included; and by version of the state a job only moves forward.
func EndsStay(h *History) []Violation {
	c := complaints{checker: "ends stay"}
	jobs, allocs := map[muster.JobID]sighting{}, map[string]sighting{}
	type reading struct {
		version muster.Version
		call    *Call
		seen    *Seen
	}
	readings := map[muster.JobID][]reading{}
	for _, call := range h.byEnd() {
		for k := range call.Seen {
			seen := &call.Seen[k]
			if call.Version != (muster.Version{}) && call.Op != OpWait {
				readings[seen.Job] = append(readings[seen.Job], reading{call.Version, call, seen})
			}
			if terminal(seen.State) {
				sameEnd(&c, h, jobs, seen.Job, "job", sighting{call.End, describe(seen.State, seen.Attempt, seen.Class, seen.ExitCode), string(call.Op) + " of " + call.Client})
			}
			for i := range seen.Ranks {
				if r := &seen.Ranks[i]; r.State == "ended" {
					sameEnd(&c, h, allocs, r.Alloc, "allocation", sighting{call.End, r.ending(), string(call.Op) + " of " + call.Client})
				}
			}
		}
	}
	for i := range h.Final.Jobs {
		job := &h.Final.Jobs[i]
		what := job.State
		if terminal(job.State) {
			what = describe(job.State, job.Attempt, job.Class, job.ExitCode)
		}
		if _, ended := jobs[job.ID]; ended || terminal(job.State) {
			sameEnd(&c, h, jobs, job.ID, "job", sighting{h.Final.Time, what, "the end of the run"})
		}
		for k := range job.Ranks {
			r := &job.Ranks[k]
			if _, ended := allocs[r.Alloc]; ended && r.State != "ended" {
				sameEnd(&c, h, allocs, r.Alloc, "allocation", sighting{h.Final.Time, r.State, "the end of the run"})
			} else if r.State == "ended" {
				sameEnd(&c, h, allocs, r.Alloc, "allocation", sighting{h.Final.Time, r.ending(), "the end of the run"})
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(readings)) {
		rows := readings[id]
		slices.SortStableFunc(rows, func(a, b reading) int {
			return cmp.Or(cmp.Compare(a.version.Epoch, b.version.Epoch), cmp.Compare(a.version.Index, b.version.Index))
		})
		for i := 1; i < len(rows); i++ {
			a, b := &rows[i-1], &rows[i]
			at, to := positionOf(a.seen), positionOf(b.seen)
			switch {
			case a.version == b.version && at != to:
				c.add(b.call.End, "at version %s job %d is %s for %s (%s) and %s for %s (%s): two servers hold different states", a.version, id,
					at, a.call.Client, a.call.Op, to, b.call.Client, b.call.Op)
			case a.version != b.version && !at.leadsTo(to):
				c.add(b.call.End, "job %d is %s at version %s (%s of %s) and %s at the later version %s (%s of %s): it went back", id, at,
					a.version, a.call.Op, a.call.Client, to, b.version, b.call.Op, b.call.Client)
			}
		}
	}
	return c.found
}

func describe(state string, attempt uint32, class string, code *int) string {
	what := fmt.Sprintf("%s in attempt %d", state, attempt)
	if class != "" {
		what += fmt.Sprintf(", class %q", class)
	}
	if code != nil {
		what += fmt.Sprintf(", exit code %d", *code)
	}
	return what
}

// sameEnd compares with how the thing was first seen ended.
func sameEnd[K comparable](c *complaints, h *History, first map[K]sighting, key K, kind string, now sighting) {
	before, known := first[key]
	if !known {
		first[key] = now
		return
	}
	if before.what != now.what {
		c.add(now.when, "%s %v was %s at %s (%s) and is %s at %s (%s): an end never changes", kind, key, before.what, h.at(before.when), before.how,
			now.what, h.at(now.when), now.how)
	}
}

// byEnd gives the calls in the order in which their answers came.
func (h *History) byEnd() []*Call {
	calls := make([]*Call, 0, len(h.Calls))
	for i := range h.Calls {
		calls = append(calls, &h.Calls[i])
	}
	slices.SortStableFunc(calls, func(a, b *Call) int { return cmp.Compare(a.End, b.End) })
	return calls
}
