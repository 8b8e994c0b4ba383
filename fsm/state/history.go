package state

import (
	"strings"
	"time"

	"github.com/musterhpc/muster"
)

// HistoryRow says how long jobs ran, those of a kind: of a user, a name and a number of GPUs, or with User "" or Stem "" of all
// users or names. A month ago counts half.
type HistoryRow struct {
	User  string
	Stem  string
	GPUs  int    // of the job, in whole ones
	Model string // of the GPUs; "" = any

	Counts []uint32    // thousandths of ended jobs, by run time: position 0 is up to HistoryBound(0), each further one up to its own
	At     muster.Time // until when Counts are decayed
}

// HistoryBounds is how many bounds there are: from one minute to some two years, the last one open.
const HistoryBounds = 80

// HistoryBound is the upper bound of a position of HistoryRow.Counts: a minute · 2^(k/4).
func HistoryBound(k int) time.Duration {
	quarters := [4]time.Duration{60_000, 71_352, 84_853, 100_908}
	return quarters[k%4] << (k / 4) * time.Millisecond
}

// historyPosition is where a run time counts.
func historyPosition(d time.Duration) int {
	k := 0
	for k < HistoryBounds-1 && d > HistoryBound(k) {
		k++
	}
	return k
}

const (
	historyUnit     = 1000
	historyHalfLife = 30 * 24 * time.Hour
	historyRows     = 50_000 // beyond it no kind is remembered that is not known yet
)

type historyKey struct {
	user, stem string
	gpus       int
	model      string
}

func (k historyKey) less(o historyKey) bool {
	if k.user != o.user {
		return k.user < o.user
	}
	if k.stem != o.stem {
		return k.stem < o.stem
	}
	if k.gpus != o.gpus {
		return k.gpus < o.gpus
	}
	return k.model < o.model
}

// Stem is what names of equal jobs have in common: a name without the number at its end.
func Stem(name string) string {
	return strings.TrimRight(strings.TrimRight(name, "0123456789"), "-_.")
}

// learn remembers how long a job ran that has ended: in the kind that is closest to it, in its user's, and in everybody's.
func (s *State) learn(j *muster.Job) {
	var ran time.Duration
	for i := range j.Attempts {
		if a := &j.Attempts[i]; a.Started > 0 {
			ran += a.Ended.Sub(a.Started)
		}
	}
	if ran <= 0 {
		return
	}
	gpus := s.t.specs.get(j.Spec).Spec.GPUs()
	s.count(historyKey{j.User, Stem(j.Name), gpus, s.modelOf(j)}, ran)
	s.count(historyKey{j.User, "", gpus, ""}, ran)
	s.count(historyKey{"", "", gpus, ""}, ran)
}

// modelOf is the GPU model that a job ran on last.
func (s *State) modelOf(j *muster.Job) string {
	for _, id := range s.t.allocsOf(j.ID, j.Attempt) {
		a := s.t.allocs.get(id)
		for slot := range s.t.nodes.get(a.Node).GPUs {
			if a.Slots.Has(slot) {
				return s.t.nodes.get(a.Node).GPUs[slot].Model
			}
		}
	}
	return ""
}

func (s *State) count(key historyKey, ran time.Duration) {
	row, _ := s.t.history.edit(key, &s.w)
	if row == nil {
		if s.t.history.len() >= historyRows {
			return
		}
		row = s.t.history.insert(key, HistoryRow{User: key.user, Stem: key.stem, GPUs: key.gpus, Model: key.model, At: s.now()}, &s.w)
	}
	row.pass(s.now())
	k := historyPosition(ran)
	for len(row.Counts) <= k {
		row.Counts = append(row.Counts, 0)
	}
	row.Counts[k] += historyUnit
}

// pass lets the counts fade in steps of a sixty-fourth of the half-life.
func (r *HistoryRow) pass(now muster.Time) {
	const steps = 64
	step := muster.Time(historyHalfLife.Milliseconds() / steps)
	n := now/step - r.At/step
	r.At = max(r.At, now)
	for ; n > 0; n-- {
		if n > 32*steps {
			clear(r.Counts)
			return
		}
		for i := range r.Counts {
			r.Counts[i] = uint32(uint64(r.Counts[i]) * stepDecay >> 32)
		}
	}
}

// Fade is the part of the counts that is left at a time, in steps as the counts themselves fade.
func (r *HistoryRow) Fade(now muster.Time) (parts int64) {
	faded := HistoryRow{Counts: []uint32{FadeUnit}, At: r.At}
	faded.pass(now)
	return int64(faded.Counts[0])
}

// FadeUnit is the whole of Fade.
const FadeUnit = 1 << 20

// stepDecay is 2^(-1/64) · 2^32.
const stepDecay = 4248701965
