package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster"
)

// outlook is what a pass would do with a job that waits.
type outlook struct {
	starts   bool        // now
	planned  bool        // its start is planned; else the times below are what would be planned
	earliest muster.Time // when it is expected to start, if others end as jobs of their kind do
	latest   muster.Time // and if they need all their time; 0 = never
	guess    bool        // nothing is known of when others end
	before   []muster.JobID
}

// look makes a pass, to see what becomes of a job. Nothing of it stays.
func (a *agenda) look(job *muster.Job, s *shape) outlook {
	defer a.rollback(0)
	a.decide()
	var out outlook
	for i := range a.plan.Gangs {
		out.starts = out.starts || a.plan.Gangs[i].Job == job.ID
	}
	if out.starts {
		return out
	}
	for i := range a.reservations {
		if r := &a.reservations[i]; r.job == job.ID {
			out.planned = true
		} else if !slices.Contains(out.before, r.job) {
			out.before = append(out.before, r.job)
		}
	}
	for i := range a.holds {
		if id := a.holds[i].row.Job; id != job.ID && a.holds[i].takes != nil {
			out.before = append(out.before, id)
		}
	}
	out.latest, out.earliest = a.when(job, s, false), a.when(job, s, true)
	out.earliest = min(out.earliest, out.latest)
	if a.guessed(out.latest) {
		out.earliest, out.latest, out.guess = 0, 0, true
	}
	return out
}

// guessed says whether what is to end before a time has no limit, and is of a kind of which too little is known: then that time says
// nothing.
func (a *agenda) guessed(start muster.Time) bool {
	for _, r := range a.v.running {
		if !r.stopping() && r.limit() == 0 && a.endOf(r) <= start && a.closest(r.job.User, r.kin, r.gpus).count < enoughAlike {
			return true
		}
	}
	return false
}

// when is when a job would start next to all that is planned, with what runs taken to end at the latest, or as is likely. 0: never.
func (a *agenda) when(job *muster.Job, s *shape, likely bool) muster.Time {
	for i := range a.reservations {
		if a.reservations[i].job == job.ID && !likely {
			return a.reservations[i].start
		}
	}
	was, timeline := a.reservations, a.timeline
	a.setLevel(0)
	defer func() { a.reservations, a.timeline = was, timeline }()
	if likely { // planned starts were made for the latest ends: they say nothing of the likely ones
		a.reservations, a.timeline = nil, slices.Clone(a.releases())
		for i := range a.timeline {
			if r := a.timeline[i].job; r != nil && !r.stopping() {
				half := a.closest(r.job.User, r.kin, r.gpus).quantile(a.ageOf(r), 0.5)
				a.timeline[i].at = min(a.timeline[i].at, a.now.Add(half))
			}
		}
		slices.SortFunc(a.timeline, release.compare)
	} else {
		a.reservations = slices.Clone(was)
	}
	before := len(a.reservations)
	spec := a.v.snapshot.Spec(job.Spec)
	key := a.v.bucketKeyOf(a.v.snapshot, job)
	lasts := a.expected(job.User, key.kin, s.gpuMilli, key.limit, pastOf(job, spec).done)
	if !a.reserve(s, job, lasts) || len(a.reservations) == before {
		return 0
	}
	for i := range a.reservations {
		if a.reservations[i].job == job.ID {
			return a.reservations[i].start
		}
	}
	return 0
}

// note says what is to be expected, in one sentence.
func (o *outlook) note(v *View, now muster.Time, free bool) string {
	switch {
	case o.starts:
		return "there is room: it starts with the next pass"
	case o.latest == 0 && free:
		return "there is room, kept for " + v.names(o.before)
	case o.latest == 0:
		return ""
	}
	from, to := roundly(o.earliest.Sub(now)), roundly(o.latest.Sub(now))
	when := "in at most " + muster.FormatDuration(to)
	if from < to && from > 0 {
		when = fmt.Sprintf("in %s to %s", muster.FormatDuration(from), muster.FormatDuration(to))
	}
	word := "it is expected to start "
	if o.planned {
		word = "its start is planned "
	}
	if free && len(o.before) > 0 {
		return fmt.Sprintf("%s%s: there is room, but it would delay %s", word, when, v.names(o.before))
	}
	return word + when
}

// roundly leaves out what an estimate can't know.
func roundly(d time.Duration) time.Duration {
	switch d = max(d, time.Second); {
	case d >= 24*time.Hour:
		return d.Round(time.Hour)
	case d >= time.Hour:
		return d.Round(5 * time.Minute)
	case d >= 2*time.Minute:
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

// names writes jobs: "seg-9 (1038), llm-2 (1040)".
func (v *View) names(ids []muster.JobID) string {
	var words []string
	for _, id := range ids[:min(len(ids), maxHolders)] {
		if j, ok := v.snapshot.Job(id); ok {
			words = append(words, fmt.Sprintf("%s (%d)", j.Name, id))
		}
	}
	if more := len(ids) - maxHolders; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return cmp.Or(strings.Join(words, ", "), "others")
}
