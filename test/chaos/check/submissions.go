package check

import (
	"maps"
	"slices"

	"github.com/musterhpc/muster"
)

// Submissions: what was acknowledged exists in the end, as what was submitted; each request and each name made one job, however
// often it was tried.
func Submissions(h *History) []Violation {
	c := complaints{checker: "submissions"}
	final := h.jobs()
	answered := map[string]*Call{} // by request
	owner := map[muster.JobID]string{}
	for i := range h.Calls {
		call := &h.Calls[i]
		if call.Op != OpSubmit || call.Outcome != OK {
			continue
		}
		if len(call.Jobs) != len(call.Names) {
			c.add(call.End, "%s submitted %d jobs (%v) and was answered with %d numbers: %v", call.Client, len(call.Names), call.Names, len(call.Jobs), call.Jobs)
			continue
		}
		if first := answered[call.Request]; first != nil && !slices.Equal(first.Jobs, call.Jobs) {
			c.add(call.End, "request %s was answered with jobs %v and, tried again, with %v: a retry made second jobs", call.Request, first.Jobs, call.Jobs)
			continue
		}
		answered[call.Request] = call
		for k, id := range call.Jobs {
			if other, taken := owner[id]; taken && other != call.Request {
				c.add(call.End, "job %d was given to request %s and to request %s", id, other, call.Request)
			}
			owner[id] = call.Request
			switch job := final[id]; {
			case h.Final.Time == 0: // nobody looked
			case job == nil:
				c.add(call.End, "job %d (%s) was acknowledged at %s and does not exist in the end", id, call.Names[k], h.at(call.End))
			case job.Name != call.Names[k]:
				c.add(call.End, "job %d was acknowledged as %s and is %s in the end", id, call.Names[k], job.Name)
			}
		}
	}
	ids := h.jobsByName()
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		if len(ids[name]) > 1 {
			c.add(0, "%s was submitted in one request and exists as jobs %v", name, slices.Sorted(maps.Keys(ids[name])))
		}
	}
	return c.found
}

// jobsByName gives the numbers under which each submitted name was ever seen.
func (h *History) jobsByName() map[string]map[muster.JobID]bool {
	out := map[string]map[muster.JobID]bool{}
	for i := range h.Calls {
		if h.Calls[i].Op == OpSubmit {
			for _, name := range h.Calls[i].Names {
				out[name] = map[muster.JobID]bool{}
			}
		}
	}
	see := func(name string, id muster.JobID) {
		if ids := out[name]; ids != nil {
			ids[id] = true
		}
	}
	for i := range h.Calls {
		call := &h.Calls[i]
		if call.Op == OpSubmit && call.Outcome == OK && len(call.Jobs) == len(call.Names) {
			for k, id := range call.Jobs {
				see(call.Names[k], id)
			}
		}
		for k := range call.Seen {
			see(call.Seen[k].Name, call.Seen[k].Job)
		}
	}
	for i := range h.Final.Jobs {
		see(h.Final.Jobs[i].Name, h.Final.Jobs[i].ID)
	}
	return out
}
