package check

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhpc/muster"
)

// Cancels: once a cancel is acknowledged, a job that was not placed never starts, a placed one does not run later than one
// lease after the answer, and no further attempt begins.
func Cancels(h *History) []Violation {
	c := complaints{checker: "cancels"}
	acknowledged := map[muster.JobID]Instant{}
	for i := range h.Calls {
		call := &h.Calls[i]
		if call.Op != OpCancel || call.Outcome != OK {
			continue
		}
		for _, id := range call.Jobs {
			if first, known := acknowledged[id]; !known || call.End < first {
				acknowledged[id] = call.End
			}
		}
	}
	last := h.attemptsAfter(acknowledged)
	lives, beats, final := map[muster.JobID][]*life{}, map[muster.JobID][]Beat{}, h.jobs()
	for _, l := range h.lives() {
		lives[l.job] = append(lives[l.job], l)
	}
	for _, b := range h.Beats {
		beats[b.Job] = append(beats[b.Job], b)
	}
	for _, id := range slices.Sorted(maps.Keys(acknowledged)) {
		answer, lease := acknowledged[id], time.Duration(muster.DefaultLease)
		if job := final[id]; job != nil {
			if job.Lease > 0 {
				lease = job.Lease
			}
			if !terminal(job.State) {
				c.add(answer, "job %d was cancelled, acknowledged at %s, and is %s in the end", id, h.at(answer), job.State)
			}
		}
		limit := answer.Add(lease)
		newest, known := last[id]
		for _, l := range lives[id] {
			begin := l.begin()
			switch {
			case begin == 0:
			case known && l.attempt > newest:
				c.add(begin, "%s started at %s, though the cancel of its job was acknowledged at %s and the newest attempt was %d then: "+
					"what is not placed never starts", l, h.at(begin), h.at(answer), newest)
			case begin > limit:
				c.add(begin, "%s started at %s, later than one lease (%v) after the cancel was acknowledged at %s", l, h.at(begin), lease, h.at(answer))
			case l.end() > limit && !h.stoodStill(l.machine, limit, l.end()):
				c.add(l.end(), "%s ran until %s, later than one lease (%v) after the cancel was acknowledged at %s", l, h.at(l.end()), lease, h.at(answer))
			}
		}
		late := map[tenure]bool{}
		for _, b := range beats[id] {
			if b.Time > limit && !late[b.tenure()] && !h.stoodStill(machineOf(b.Machine, b.Node), limit, b.Time) {
				late[b.tenure()] = true
				c.add(b.Time, "the task of %s (pid %d on %s) itself wrote at %s, later than one lease (%v) after the cancel was acknowledged at %s",
					b.tenure(), b.PID, b.Node, h.at(b.Time), lease, h.at(answer))
			}
		}
	}
	return c.found
}

// attemptsAfter gives, for each job, the lowest number of attempts that a linearizable read begun after an instant showed.
func (h *History) attemptsAfter(since map[muster.JobID]Instant) map[muster.JobID]uint32 {
	out := map[muster.JobID]uint32{}
	for i := range h.Calls {
		call := &h.Calls[i]
		if call.Stale || call.Outcome != OK {
			continue
		}
		for k := range call.Seen {
			seen := &call.Seen[k]
			answer, asked := since[seen.Job]
			if lowest, known := out[seen.Job]; asked && call.Start > answer && (!known || seen.Attempt < lowest) {
				out[seen.Job] = seen.Attempt
			}
		}
	}
	return out
}
