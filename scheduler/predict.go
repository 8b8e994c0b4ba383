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

// surely is the chance with which a job without a limit is to be done by the time that it is expected to take at most.
const surely = 0.9

// expected is how long a job that has run for age is taken to run on, at most: its limit, else what most of its kind took.
func (a *agenda) expected(user string, kin kinID, gpus int64, limit, age time.Duration) time.Duration {
	if limit == 0 {
		if l := a.closest(user, kin, gpus); l.count >= enoughAlike {
			return l.quantile(age, surely)
		}
		limit = unknownRun
	}
	if age >= limit {
		return overdue(age)
	}
	return limit - age
}

// endOf is when a running job is expected to end, at the latest.
func (a *agenda) endOf(r *running) muster.Time {
	if r.stopping() {
		return a.now
	}
	return a.now.Add(a.expected(r.job.User, r.kin, r.gpus, r.limit(), a.ageOf(r)))
}

// enoughAlike is how many jobs of a name must have ended for the next one of that name.
const enoughAlike = 5

// closest is what is known of jobs of the same user, name and size, or, where that is little, of a wider kind.
func (a *agenda) closest(user string, kin kinID, gpus int64) *lives {
	if stem := a.v.kinNames[kin]; stem != "" {
		if l := a.read(kind{user, stem, gpus}); l.count >= enoughAlike {
			return l
		}
	}
	return a.livesOf(user, gpus)
}
