package scheduler

import (
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// kinID is a stem of job names, as the view numbers them; 0 = none in particular.
type kinID int32

// maxKin bounds how many stems are told apart: names that are all different say nothing of each other.
const maxKin = 4096

func (v *View) kin(name string) kinID {
	stem := state.Stem(name)
	id, known := v.kins[stem]
	if !known && len(v.kinNames) < maxKin {
		id = kinID(len(v.kinNames))
		v.kins[stem] = id
		v.kinNames = append(v.kinNames, stem)
	}
	return id
}

// unknownRun is how long a job is taken to run of which nothing is known.
const unknownRun = 24 * time.Hour

// overdue is how much longer a job is taken to run that has reached the time it was expected to take: a tenth of it.
func overdue(age time.Duration) time.Duration { return max(time.Minute, age/10) }

// expected is how long a job whose attempt has run for age is taken to run on, at most.
func (v *View) expected(user string, kin kinID, gpus int64, limit, age time.Duration) time.Duration {
	if limit == 0 {
		limit = unknownRun
	}
	if age >= limit {
		return overdue(age)
	}
	return limit - age
}

// endOf is when a running job is expected to end, at the latest.
func (v *View) endOf(r *running, now muster.Time) muster.Time {
	if r.stopping() {
		return now
	}
	age := now.Sub(r.started(now)) + r.past.done
	limit := time.Duration(0)
	if r.spec != nil {
		limit = r.spec.TimeLimit
	}
	return now.Add(v.expected(r.job.User, 0, r.gpus, limit, age))
}
