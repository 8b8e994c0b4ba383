package check

import (
	"cmp"
	"slices"
	"time"
)

// What a healed cluster owes.
const (
	quietAfter  = 60 * time.Second // each job has ended by then, or is held with its reason
	probeWithin = 5 * time.Second  // a new job runs
)

// Liveness: 60 s after the last fault each job has ended or is held by the loop guard with its reason, and a new one runs
// within 5 s. The state at the end is to be taken when all have, or 60 s after the last fault, whichever is first.
func Liveness(h *History) []Violation {
	c := complaints{checker: "liveness"}
	limit := h.lastFault().Add(quietAfter)
	for i := range h.Final.Jobs {
		job := &h.Final.Jobs[i]
		switch {
		case terminal(job.State):
			if job.Ended > limit {
				c.add(job.Ended, "job %d was %s at %s only, %v after the last fault was healed", job.ID, job.State, h.at(job.Ended),
					job.Ended.Sub(h.lastFault()))
			}
		case job.State == "held" && job.Reason != "" && job.Class != "":
		case job.State == "held":
			c.add(h.Final.Time, "job %d is held without a reason (class %q, reason %q)", job.ID, job.Class, job.Reason)
		case h.Final.Time < limit:
			c.add(h.Final.Time, "job %d is %s in attempt %d, and the state was taken only %v after the last fault: wait %v", job.ID, job.State,
				job.Attempt, h.Final.Time.Sub(h.lastFault()), quietAfter)
		default:
			c.add(h.Final.Time, "job %d is %s in attempt %d, %v after the last fault was healed: %s", job.ID, job.State, job.Attempt,
				h.Final.Time.Sub(h.lastFault()), cmp.Or(job.Reason, "no reason given"))
		}
	}
	if len(h.Faults) > 0 && len(h.Probes) == 0 {
		c.add(0, "no probe job was submitted after the last fault")
	}
	for _, p := range h.Probes {
		switch {
		case p.Ran == 0:
			c.add(p.Asked, "probe job %d, submitted at %s, never ran", p.Job, h.at(p.Asked))
		case p.Ran.Sub(p.Asked) > probeWithin:
			c.add(p.Asked, "probe job %d, submitted at %s, ran after %v, more than %v", p.Job, h.at(p.Asked), p.Ran.Sub(p.Asked), probeWithin)
		}
	}
	return c.found
}

// lastFault is when the last fault was healed; without any, the begin of the run.
func (h *History) lastFault() Instant {
	if len(h.Faults) == 0 {
		return h.Run.Start
	}
	return slices.MaxFunc(h.Faults, func(a, b Fault) int { return cmp.Compare(a.End, b.End) }).End
}
