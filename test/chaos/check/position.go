package check

import "fmt"

// position is where a job stands, as reads show it. The zero value: it doesn't exist.
type position struct {
	state   string
	attempt uint32
}

func positionOf(s *Seen) position { return position{s.State, s.Attempt} }

func (p position) String() string {
	if p.state == "" {
		return "absent"
	}
	return fmt.Sprintf("%s in attempt %d", p.state, p.attempt)
}

// The order within an attempt. Held and pending come last: the attempt is over then. Before the first attempt only they occur.
var ranking = map[string]int{"preparing": 1, "running": 2, "stopping": 3, "held": 4, "pending": 5, "succeeded": 6, "failed": 6, "cancelled": 6}

// valid says whether a job can be so at all.
func (p position) valid() bool {
	rank := ranking[p.state]
	return rank > 0 && (p.attempt > 0 || rank >= ranking["held"])
}

// leadsTo says whether a job that stands at p can come to stand at q. Nothing is ever come back to, so the times at which
// a job stands somewhere are one interval.
func (p position) leadsTo(q position) bool {
	switch {
	case p == q:
		return true
	case p.state == "" || terminal(p.state) || !q.valid(): // out of nothing only a submission leads
		return false
	case p.attempt != q.attempt:
		return p.attempt < q.attempt
	}
	return ranking[p.state] < ranking[q.state]
}
