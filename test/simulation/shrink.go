package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// shrinker looks for a smaller plan that still breaks a promise.
type shrinker struct {
	bugs  Bugs
	runs  int // that are left
	best  *Plan
	found Outcome
}

// noises is how many worlds a smaller plan is tried in: without a fault all that comes after it falls differently.
const noises = 3

// late is how much later than before a smaller plan may fail.
const late = 20 * time.Second

// Shrink gives a plan that breaks the same promise and from which little can be left out, found in at most so many runs, and how it
// fails. The plan that it is given must fail.
func Shrink(p *Plan, bugs Bugs, runs int) (*Plan, Outcome) {
	s := &shrinker{bugs: bugs, runs: runs, best: p, found: Run(p, bugs, nil)}
	for before := -1; before != s.runs && s.runs > 0; {
		before = s.runs
		size := s.size()
		s.shorten()
		lists(s, func(p *Plan) *[]Fault { return &p.Faults })
		lists(s, func(p *Plan) *[]JobPlan { return &p.Jobs })
		s.machines()
		s.simplify()
		if s.size() == size {
			break
		}
	}
	return s.best, s.found
}

func (s *shrinker) size() [5]int {
	p := s.best
	total := time.Duration(0)
	for _, f := range p.Faults {
		total += f.For
	}
	return [5]int{len(p.Faults), len(p.Jobs), p.Machines, int(p.Horizon / time.Second), int(total / time.Second)}
}

// try takes a plan when it fails.
func (s *shrinker) try(change func(p *Plan)) bool {
	for noise := range uint64(noises) {
		if s.runs <= 0 {
			return false
		}
		s.runs--
		p := *s.best
		p.Faults, p.Jobs, p.Drift = slices.Clone(p.Faults), slices.Clone(p.Jobs), slices.Clone(p.Drift)
		p.Noise = s.best.Noise + noise
		change(&p)
		until := p.Horizon + settleTime
		if s.found.Promise != atRest {
			until = min(until, s.found.At+late)
		}
		if o := run(&p, s.bugs, nil, until); o.Promise == s.found.Promise {
			s.best, s.found = &p, o
			return true
		}
	}
	return false
}

// shorten ends the run where it failed.
func (s *shrinker) shorten() {
	at := s.found.At + 100*time.Millisecond
	if at >= s.best.Horizon {
		return
	}
	s.try(func(p *Plan) {
		p.Horizon = at
		p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return f.At >= at })
		p.Jobs = slices.DeleteFunc(p.Jobs, func(j JobPlan) bool { return j.At >= at })
	})
}

// lists leaves out parts of a list: halves first, then smaller and smaller ones.
func lists[T any](s *shrinker, of func(*Plan) *[]T) {
	for size := (len(*of(s.best)) + 1) / 2; size >= 1; size /= 2 {
		for from := 0; from < len(*of(s.best)); {
			if !s.try(func(p *Plan) {
				list := of(p)
				*list = slices.Delete(*list, from, min(from+size, len(*list)))
			}) {
				from += size
			}
		}
	}
}

// machines leaves out the last machine.
func (s *shrinker) machines() {
	for s.best.Machines > 1 {
		last := s.best.Servers + s.best.Machines - 1
		if !s.try(func(p *Plan) {
			p.Machines--
			p.Drift = p.Drift[:last]
			for i := range p.Faults {
				p.Faults[i].Hosts = slices.DeleteFunc(slices.Clone(p.Faults[i].Hosts), func(h int) bool { return h == last })
			}
			p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return len(f.Hosts) == 0 && f.Kind.hits() })
			p.Jobs = slices.DeleteFunc(p.Jobs, func(j JobPlan) bool { return !p.fits(&j) })
		}) {
			return
		}
	}
}

// hits says whether a fault needs somebody whom it hits.
func (k FaultKind) hits() bool { return k != LossyNetwork && k != SlowNetwork && k != Release }

// simplify makes what is left plainer.
func (s *shrinker) simplify() {
	s.try(func(p *Plan) {
		for i := range p.Drift {
			p.Drift[i] = 1
		}
	})
	for i := range s.best.Faults {
		for s.best.Faults[i].For > time.Second && s.try(func(p *Plan) { p.Faults[i].For = (p.Faults[i].For / 2).Round(100 * time.Millisecond) }) {
		}
		if len(s.best.Faults[i].Hosts) > 1 {
			for h := 0; h < len(s.best.Faults[i].Hosts) && len(s.best.Faults[i].Hosts) > 1; {
				if !s.try(func(p *Plan) { p.Faults[i].Hosts = slices.Delete(slices.Clone(p.Faults[i].Hosts), h, h+1) }) {
					h++
				}
			}
		}
	}
	for i := range s.best.Jobs {
		if s.best.Jobs[i].Ranks > 1 {
			s.try(func(p *Plan) { p.Jobs[i].Ranks = 1 })
		}
		if s.best.Jobs[i].CancelAfter > 0 {
			s.try(func(p *Plan) { p.Jobs[i].CancelAfter = 0 })
		}
	}
}

// storyLines is how long a story is at most: what led to its end stands in its last lines.
const storyLines = 60

// Story tells a run of a plan in lines with the time of the world.
func Story(p *Plan, bugs Bugs) string {
	var lines []string
	o := Run(p, bugs, func(at time.Duration, who, what string) {
		lines = append(lines, fmt.Sprintf("%9.3fs  %-10s %s", at.Seconds(), who, what))
	})
	left := len(lines) - storyLines
	var out strings.Builder
	fmt.Fprintf(&out, "%d servers, %d machines with %d GPUs each; %d submissions, %d faults\n", p.Servers, p.Machines, p.GPUs, len(p.Jobs), len(p.Faults))
	if left > 0 {
		fmt.Fprintf(&out, "… %d lines before …\n", left)
		lines = lines[left:]
	}
	out.WriteString(strings.Join(lines, "\n"))
	if o.Failure == "" {
		out.WriteString("\nand every promise was kept")
	}
	return out.String() + "\n"
}
