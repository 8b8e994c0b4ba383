package check

import (
	"slices"
	"time"
)

// settleTime is how long a worker's report may be on its way when all is well again.
const settleTime = 10 * time.Second

// lossWithin is how far from a fault the cluster may call an allocation lost: a lease, the leader's margin, a restart.
const lossWithin = 2 * time.Minute

// Exits: each end is reported once, and the API says of it what the worker's journal says. The cluster may call an allocation
// lost that ended by itself only where there was a fault.
func Exits(h *History) []Violation {
	c := complaints{checker: "exits"}
	lives := map[string]*life{}
	for _, l := range h.lives() {
		lives[l.alloc] = l
		for i := 1; i < len(l.ends); i++ {
			if a, b := &l.ends[0], &l.ends[i]; a.Class != b.Class || a.ExitCode != b.ExitCode || a.Signal != b.Signal {
				c.add(b.Time, "%s ended twice in the journal: %s at %s, %s at %s", l, ending(a.Class, a.ExitCode, a.Signal), h.at(a.Time),
					ending(b.Class, b.ExitCode, b.Signal), h.at(b.Time))
			}
		}
	}
	for i := range h.Final.Jobs {
		job := &h.Final.Jobs[i]
		numbers := map[uint32]bool{}
		for _, a := range job.Attempts {
			if numbers[a.Number] {
				c.add(0, "job %d has attempt %d twice: an end was counted twice", job.ID, a.Number)
			}
			numbers[a.Number] = true
			if a.Number > job.Attempt {
				c.add(0, "job %d is in attempt %d and has an attempt %d", job.ID, job.Attempt, a.Number)
			}
		}
		allocs := map[string]bool{}
		for k := range job.Ranks {
			r := &job.Ranks[k]
			if allocs[r.Alloc] {
				c.add(0, "job %d has allocation %s twice: an end was counted twice", job.ID, r.Alloc)
			}
			allocs[r.Alloc] = true
			if l := lives[r.Alloc]; l != nil {
				c.compare(h, r, l)
			} else if len(h.Events) > 0 && r.State == "ended" && (r.Class == "" || r.Class == "exit") {
				c.add(0, "allocation %s of job %d (rank %d on %s) ended by itself as the API says, and no worker knows of it", r.Alloc, job.ID, r.Rank, r.Node)
			}
		}
	}
	return c.found
}

func (c *complaints) compare(h *History, r *Rank, l *life) {
	if len(l.ends) == 0 {
		if r.State == "ended" && (r.Class == "" || r.Class == "exit") {
			c.add(0, "%s: the API says %s, the journal knows of no end", l, r.ending())
		}
		return
	}
	e := &l.ends[0]
	journal := ending(e.Class, e.ExitCode, e.Signal)
	own := e.Class == "" || e.Class == "exit" // the process ended by itself, as far as its worker knows
	if r.State != "ended" {
		if h.Final.Time.Sub(max(e.Time, h.lastFault())) > settleTime {
			c.add(e.Time, "%s ended with %s at %s, and the API still says %s: the end was never reported", l, journal, h.at(e.Time), r.State)
		}
		return
	}
	code := 0
	if r.ExitCode != nil {
		code = *r.ExitCode
	}
	same := r.ExitCode == nil || code == e.ExitCode
	same = same && (r.Signal == 0 || e.Signal == r.Signal)
	switch r.Class {
	case "node":
		if own && !h.faultAround(l.begin(), e.Time.Add(lossWithin)) {
			c.add(e.Time, "%s ended with %s at %s, and the API calls it lost though nothing was wrong", l, journal, h.at(e.Time))
		}
	case "cancelled", "preempted", "drain", "collateral", "prepare":
		if !same {
			c.add(e.Time, "%s: the journal says %s, the API says %s", l, journal, r.ending())
		}
	default:
		if e.Class != r.Class || !same {
			c.add(e.Time, "%s: the journal says %s, the API says %s", l, journal, r.ending())
		}
	}
}

// faultAround says whether a fault was there at some time of a span.
func (h *History) faultAround(from, to Instant) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.Start < to && from < f.End.Add(lossWithin) })
}

func (r *Rank) ending() string {
	code := 0
	if r.ExitCode != nil {
		code = *r.ExitCode
	}
	return ending(r.Class, code, r.Signal)
}
