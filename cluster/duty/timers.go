package duty

import (
	"math"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// backoffKey is one delay of a job: a later attempt's is another one.
type backoffKey struct {
	job     muster.JobID
	attempt uint32
}

// Backoffs measures delays on a monotonic clock, from when this leader first saw them; a new leader begins anew, so that a
// delay is never cut short.
type Backoffs map[backoffKey]Boot

// Due gives the jobs whose delay has passed, at most as many as one entry should name.
func (b *Backoffs) Due(now Boot, s *state.Snapshot) []muster.JobID {
	seen := Backoffs{}
	var due []muster.JobID
	for job := range s.BackingOff() {
		key := backoffKey{job.ID, job.Attempt}
		since, known := (*b)[key]
		if !known {
			since = now
		}
		seen[key] = since
		if now >= since+Boot(job.Backoff) && len(due) < state.PurgeBatch {
			due = append(due, job.ID)
		}
	}
	*b = seen
	return due
}

// Outlived gives ended jobs to forget, those that ended first: what ended before since, else what there is more of than keep. At
// most as many as one entry should name.
func Outlived(s *state.Snapshot, since muster.Time, keep int) []muster.JobID {
	var jobs []muster.JobID
	for id := range s.Ended(since) {
		if len(jobs) == state.PurgeBatch {
			return jobs
		}
		jobs = append(jobs, id)
	}
	excess := s.JobCount() - keep
	if len(jobs) > 0 || excess <= 0 {
		return jobs
	}
	for id := range s.Ended(math.MaxInt64) {
		if len(jobs) == min(excess, state.PurgeBatch) {
			return jobs
		}
		jobs = append(jobs, id)
	}
	return jobs
}

// Overdue gives jobs that were to start before now and have not been placed, at most as many as one entry should name.
func Overdue(s *state.Snapshot, now muster.Time) []muster.JobID {
	var jobs []muster.JobID
	for id := range s.StartDue(now) {
		if len(jobs) == state.PurgeBatch {
			break
		}
		jobs = append(jobs, id)
	}
	return jobs
}
