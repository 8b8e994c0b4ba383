package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhpc/muster"
)

// wakeSlack is how long after waking a machine that stood still may keep tasks whose lease is over: it kills within 1 s, and
// what a task wrote in that second may be written down a little later.
const wakeSlack = 1500 * time.Millisecond

// place is a rank of a job, whatever its attempt.
type place struct {
	job   muster.JobID
	group string
	rank  int
}

func (p place) String() string {
	if p.group == "" {
		return fmt.Sprintf("%d/%d", p.job, p.rank)
	}
	return fmt.Sprintf("%d/%s/%d", p.job, p.group, p.rank)
}

// tenure is a rank in one attempt: an allocation, as its task knows it.
type tenure struct {
	place
	attempt uint32
}

func (t tenure) String() string { return fmt.Sprintf("%s@%d", t.place, t.attempt) }

// life is what the workers wrote down of an allocation.
type life struct {
	tenure
	alloc   string
	machine string
	slots   []int
	intents []Event
	starts  []Event
	ends    []Event
	ready   Instant // 0 = never
	killed  Instant // 0 = never
	seen    Instant // newest beat of its task; 0 = none
}

// begin is when the worker bound itself to start it.
func (l *life) begin() Instant {
	switch {
	case len(l.intents) > 0:
		return l.intents[0].Time
	case len(l.starts) > 0:
		return l.starts[0].Time
	}
	return 0
}

// end is when its process was gone, by the worker's own evidence. A class node end that nobody saw was written down when the
// worker came back: the last sign of life counts then.
func (l *life) end() Instant {
	for _, e := range l.ends {
		if e.Gone > 0 {
			return e.Gone
		}
		if e.Class != "node" {
			return e.Time
		}
	}
	if l.killed > 0 {
		return l.killed
	}
	return max(l.seen, l.begin())
}

func (l *life) String() string {
	return fmt.Sprintf("%s (allocation %s on %s)", l.tenure, l.alloc, l.machine)
}

func machineOf(machine, node string) string {
	if machine != "" {
		return machine
	}
	return node
}

// lives sorts the workers' events by allocation, oldest first.
func (h *History) lives() []*life {
	events := slices.Clone(h.Events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Time, b.Time) })
	byAlloc := map[string]*life{}
	var all []*life
	for _, e := range events {
		if e.Alloc == "" {
			continue
		}
		l := byAlloc[e.Alloc]
		if l == nil {
			l = &life{alloc: e.Alloc, tenure: tenure{place{e.Job, e.Group, e.Rank}, e.Attempt}, machine: machineOf(e.Machine, e.Node)}
			byAlloc[e.Alloc] = l
			all = append(all, l)
		}
		if len(l.slots) == 0 {
			l.slots = e.Slots
		}
		switch e.Kind {
		case Ready:
			if l.ready == 0 {
				l.ready = e.Time
			}
		case Intent:
			l.intents = append(l.intents, e)
		case Started:
			l.starts = append(l.starts, e)
		case Killed:
			l.killed = e.Time
		case Ended:
			l.ends = append(l.ends, e)
		}
	}
	byTenure := map[tenure]*life{}
	for _, l := range all {
		byTenure[l.tenure] = l
	}
	for _, b := range h.Beats {
		if l := byTenure[b.tenure()]; l != nil {
			l.seen = max(l.seen, b.Time)
		}
	}
	return all
}

func (b *Beat) tenure() tenure { return tenure{place{b.Job, b.Group, b.Rank}, b.Attempt} }

// beats gives the tasks' own lines by tenure, in the order of time.
func (h *History) beats() map[tenure][]Beat {
	out := map[tenure][]Beat{}
	for _, b := range h.Beats {
		out[b.tenure()] = append(out[b.tenure()], b)
	}
	for _, lines := range out {
		slices.SortFunc(lines, func(a, b Beat) int { return cmp.Compare(a.Time, b.Time) })
	}
	return out
}

// stoodStill says whether the machine was suspended over the whole of a time, the second in which it kills after waking
// included: what its tasks did then, the design does not promise.
func (h *History) stoodStill(machine string, from, to Instant) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool {
		return slices.Contains(f.Suspended, machine) && f.Start <= from && to <= f.End.Add(wakeSlack)
	})
}

// byPlace groups lives by rank, each in the order of begin.
func byPlace(lives []*life) ([]place, map[place][]*life) {
	out := map[place][]*life{}
	for _, l := range lives {
		if l.begin() > 0 {
			out[l.place] = append(out[l.place], l)
		}
	}
	for _, l := range out {
		slices.SortStableFunc(l, func(a, b *life) int { return cmp.Compare(a.begin(), b.begin()) })
	}
	return slices.SortedFunc(maps.Keys(out), comparePlaces), out
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.group, b.group), cmp.Compare(a.rank, b.rank))
}

func compareTenures(a, b tenure) int {
	return cmp.Or(comparePlaces(a.place, b.place), cmp.Compare(a.attempt, b.attempt))
}

// jobs gives the jobs of the end by number.
func (h *History) jobs() map[muster.JobID]*Job {
	out := make(map[muster.JobID]*Job, len(h.Final.Jobs))
	for i := range h.Final.Jobs {
		out[h.Final.Jobs[i].ID] = &h.Final.Jobs[i]
	}
	return out
}

// terminal says whether a state, as the API says it, is final.
func terminal(state string) bool {
	phase, _ := muster.ParseJobPhase(state)
	return phase.Terminal()
}

// at writes an instant as time since the begin of the run, the way the plan and the report do.
func (h *History) at(t Instant) string { return fmt.Sprintf("+%.3fs", t.Sub(h.Run.Start).Seconds()) }

// complaints collects what a checker finds.
type complaints struct {
	checker string
	found   []Violation
}

func (c *complaints) add(t Instant, format string, args ...any) {
	c.found = append(c.found, Violation{c.checker, t, fmt.Sprintf(format, args...)})
}
