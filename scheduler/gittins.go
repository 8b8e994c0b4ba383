package scheduler

import (
	"math"
	"sort"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// Of a job without a limit only the kind is known, and how long jobs of the kind ran. What comes first then is the one with the best
// chance to be done soon for the time it takes to see: the Gittins index, which is optimal where jobs can be preempted (Gittins
// 1979; for jobs of unknown length on a cluster, Tiresias, NSDI'19).

// kind is jobs that are taken to be alike: of a user, a stem of names and a number of GPUs. With user or stem "" of all of them, with
// gpus < 0 of any number.
type kind struct {
	user, stem string
	gpus       int64
}

// enoughEnded is how many jobs of a kind must have ended, for it to stand for itself.
const enoughEnded = 20

// priorJobs is how much is believed before anything has ended: as if so many jobs had, log-uniformly over all lengths.
const priorJobs = 2.0

// lives is how many of a kind's jobs ended at an age, and how many were seen to reach it; positions as state.HistoryBound has them.
type lives struct {
	ended   [state.HistoryBounds]float64
	reached [state.HistoryBounds]float64
	count   float64                      // that ended
	hazard  [state.HistoryBounds]float64 // part of those that reached a position that ended there
	fresh   float64                      // the index at age 0; 0 = not reckoned yet
}

// kinds is what a pass knows of lengths.
type kinds struct {
	known  map[kind]*lives
	chosen map[kind]kind
	ages   map[kind][]time.Duration // of jobs that have not ended
}

// readAges lists how long jobs without a limit have run that have not ended: these are lengths, too, though not whole ones.
func (a *agenda) readAges() {
	k := &a.kinds
	k.known, k.chosen, k.ages = map[kind]*lives{}, map[kind]kind{}, map[kind][]time.Duration{}
	add := func(user string, gpus int64, age time.Duration) {
		if age <= 0 {
			return
		}
		for _, of := range [...]kind{{user, "", gpus}, {"", "", gpus}, {"", "", -1}} {
			k.ages[of] = append(k.ages[of], age)
		}
	}
	for _, r := range a.v.running {
		if r.limit() == 0 {
			add(r.job.User, r.gpus, a.ageOf(r))
		}
	}
	for _, q := range a.v.queues {
		for _, b := range q.buckets {
			if b.key.own != 0 && b.key.limit == 0 {
				add(b.key.user.name, b.shape.gpuMilli, b.past.done)
			}
		}
	}
}

// livesOf is the closest kind of a job of which enough is known.
func (a *agenda) livesOf(user string, gpus int64) *lives {
	k := &a.kinds
	own := kind{user, "", gpus}
	of, ok := k.chosen[own]
	if !ok {
		for _, of = range [...]kind{own, {"", "", gpus}, {"", "", -1}} {
			if a.read(of).count >= enoughEnded {
				break
			}
		}
		k.chosen[own] = of
	}
	return a.read(of)
}

// read counts the lives of a kind.
func (a *agenda) read(of kind) *lives {
	k := &a.kinds
	if k.known == nil {
		a.readAges()
	}
	if l := k.known[of]; l != nil {
		return l
	}
	l := &lives{}
	k.known[of] = l
	count := func(row *state.HistoryRow) {
		fade := float64(row.Fade(a.now)) / state.FadeUnit
		for i, n := range row.Counts {
			l.ended[i] += float64(n) / 1000 * fade
			l.count += float64(n) / 1000 * fade
		}
	}
	if of.gpus >= 0 {
		for row := range a.v.snapshot.History(of.user, of.stem, int((of.gpus+999)/1000)) {
			count(row)
		}
	} else {
		for row := range a.v.snapshot.Everybodys() {
			count(row)
		}
	}
	for i := range l.ended {
		l.ended[i] += priorJobs / state.HistoryBounds
	}
	reached := 0.0
	for i := len(l.ended) - 1; i >= 0; i-- {
		reached += l.ended[i]
		l.reached[i] = reached
	}
	for _, age := range k.ages[of] {
		for i := 0; i < len(l.reached) && lowerBound(i) < age; i++ {
			part := 1.0
			if upper := bounds[i]; age < upper {
				part = float64(age-lowerBound(i)) / float64(upper-lowerBound(i))
			}
			l.reached[i] += part
		}
	}
	for i := range l.hazard {
		l.hazard[i] = min(1, l.ended[i]/l.reached[i])
	}
	return l
}

func lowerBound(i int) time.Duration {
	if i == 0 {
		return 0
	}
	return bounds[i-1]
}

// index is the least expected time to spend on a job that has run for age, over the chance that it is done then: in seconds.
func (l *lives) index(age time.Duration) float64 {
	first := sort.Search(state.HistoryBounds, func(i int) bool { return bounds[i] > age })
	if first == state.HistoryBounds { // beyond all bounds
		return age.Seconds() / max(0.01, l.hazard[first-1])
	}
	if age == 0 && l.fresh > 0 {
		return l.fresh
	}
	best, spent, alive := math.Inf(1), 0.0, 1.0
	for i := first; i < state.HistoryBounds && spent < best; i++ {
		width, hazard := widths[i], l.hazard[i]
		if lower := lowerBound(i); age > lower {
			left := float64(bounds[i]-age) / float64(bounds[i]-lower)
			width, hazard = width*left, hazard*left
		}
		spent += alive * width * (1 - hazard/2)
		alive *= 1 - hazard
		if done := 1 - alive; done > 0 {
			best = min(best, spent/done)
		}
	}
	if age == 0 {
		l.fresh = best
	}
	return best
}

// The bounds of ages, and in seconds how far each is from the one before.
var bounds, widths = func() (bounds [state.HistoryBounds]time.Duration, widths [state.HistoryBounds]float64) {
	for i := range bounds {
		bounds[i] = state.HistoryBound(i)
		widths[i] = bounds[i].Seconds()
		if i > 0 {
			widths[i] = (bounds[i] - bounds[i-1]).Seconds()
		}
	}
	return bounds, widths
}()

// quantile is within how much more time a job is done that has run for age, with a chance of p.
func (l *lives) quantile(age time.Duration, p float64) time.Duration {
	alive := 1.0
	for i := range l.ended {
		lower, upper := lowerBound(i), bounds[i]
		if upper <= age {
			continue
		}
		hazard := l.hazard[i]
		if from := max(lower, age); from > lower {
			hazard *= float64(upper-from) / float64(upper-lower)
		}
		if alive *= 1 - hazard; 1-alive >= p {
			return upper - age
		}
	}
	return overdue(age) + bounds[state.HistoryBounds-1]/4
}

// runningWorth is how much less a running job's index counts: who is preempted loses more than its place.
const runningWorth = 0.5

// rankEvery is how often jobs whose index changes as they run are compared anew, though nothing else happens.
const rankEvery = 30 * time.Minute

func (a *agenda) ageOf(r *running) time.Duration {
	return max(0, a.now.Sub(r.started(a.now))) + r.past.done
}

// sizePower is how much a job's GPUs count in its index: less than in full, for the index errs by more than the number of GPUs.
const sizePower = 0.75

// value is a job's place by expected remaining GPU time, in GPU-seconds: by its limit, else by what is known of its kind.
func (a *agenda) value(user string, gpus int64, limit, age time.Duration, runs bool) float64 {
	if limit > 0 {
		return max(time.Second, limit-age).Seconds() * weightOf(gpus)
	}
	v := a.livesOf(user, gpus).index(age) * math.Pow(weightOf(gpus), sizePower)
	if runs {
		v *= runningWorth
	}
	return v
}

// rankAgain has a further pass when places may have changed just by time.
func (a *agenda) rankAgain() {
	if a.kinds.known != nil && a.policy.Preemption == muster.PreemptShortest {
		a.wakeAt(a.now.Add(rankEvery))
	}
}
