package check

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/musterhpc/muster"
)

// decideWithin bounds the search for all jobs together. It is never near: see condense.
const decideWithin = 20 * time.Second

// The operations on one job, as the model knows them.
const (
	submits = iota
	cancels
	reads
)

type input struct {
	op       int
	answer   position // of a read
	answered bool     // not of unknown outcome
	calls    string   // for people: whose calls these were
}

// model is the state between operations: where the job was last known to stand, and what was asked of it.
type model struct {
	last      position
	cancelled bool // a cancel has been applied
	bound     bool // and was seen to stop it: it ends cancelled
}

// Linearizable: there is one order of all calls about a job, in keeping with their times, in which each answer is what a single
// correct copy of the state would have given. Stale reads are not part of it. A call whose outcome is unknown may have
// taken effect at any later time, or never.
func Linearizable(h *History) []Violation {
	c := complaints{checker: "linearizable"}
	deadline := time.Now().Add(decideWithin)
	operations := h.operations()
	for _, id := range slices.Sorted(maps.Keys(operations)) {
		history := operations[id]
		left := max(time.Until(deadline), time.Millisecond)
		switch porcupine.CheckOperationsTimeout(jobModel(history.submitted), history.all, left) {
		case porcupine.Illegal:
			c.add(Instant(history.all[0].Call), "no order of these calls explains the answers about job %d: %s", id, h.story(history.all))
		case porcupine.Unknown:
			c.add(0, "the calls about job %d were too many to decide (%d operations in %v)", id, len(history.all), decideWithin)
		}
	}
	return c.found
}

// jobModel is one job. Between operations it moves forward by itself; submitted says whether its submission is in the
// history, else it exists from the beginning.
func jobModel(submitted bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			if submitted {
				return model{}
			}
			return model{last: position{state: "held"}}
		},
		Step: func(state, in, _ any) (bool, any) {
			m, op := state.(model), in.(input)
			switch op.op {
			case submits:
				if m.last.state == "" {
					m.last = position{state: "held"}
				}
				return true, m
			case cancels:
				if m.last.state == "" {
					return !op.answered, m // not found, and nobody heard of it
				}
				m.cancelled = true
				return true, m
			}
			if !m.last.leadsTo(op.answer) || op.answer.state == "cancelled" && !m.cancelled {
				return false, m
			}
			if m.cancelled && !terminal(m.last.state) {
				switch {
				case m.bound && (op.answer.attempt != m.last.attempt || op.answer.state != "stopping" && op.answer.state != "cancelled"):
					return false, m
				case op.answer.state == "stopping":
					m.bound = true
				case !terminal(op.answer.state):
					return false, m
				}
			}
			m.last = op.answer
			return true, m
		},
	}
}

type jobHistory struct {
	submitted bool
	all       []porcupine.Operation
}

// operations gives, for each job, few operations that can be ordered just when all its calls can.
func (h *History) operations() map[muster.JobID]*jobHistory {
	names, ids := h.jobsByName(), map[muster.JobID]*condense{}
	of := func(id muster.JobID) *condense {
		if ids[id] == nil {
			ids[id] = &condense{answers: map[position]*answers{}}
		}
		return ids[id]
	}
	var lists []*Call
	for i := range h.Calls {
		call := &h.Calls[i]
		switch {
		case call.Op == OpSubmit && call.Outcome != Refused:
			for _, name := range call.Names {
				for id := range names[name] {
					of(id).submit.add(call)
				}
			}
		case call.Op == OpCancel && call.Outcome != Refused:
			for _, id := range call.Jobs {
				of(id).cancel.add(call)
			}
		case call.Outcome == Refused && call.Refusal == muster.KindNotFound && len(call.Jobs) == 1 && !call.Stale && call.Op != OpSubmit:
			of(call.Jobs[0]).read(position{}, call)
		case call.Outcome == OK && !call.Stale:
			for k := range call.Seen {
				of(call.Seen[k].Job).read(positionOf(&call.Seen[k]), call)
			}
			if call.Complete {
				lists = append(lists, call)
			}
		}
	}
	for _, call := range lists {
		shown := map[muster.JobID]bool{}
		for k := range call.Seen {
			shown[call.Seen[k].Job] = true
		}
		for id, job := range ids {
			if !shown[id] {
				job.read(position{}, call)
			}
		}
	}
	out := map[muster.JobID]*jobHistory{}
	for id, job := range ids {
		out[id] = &jobHistory{submitted: job.submit.tries > 0, all: job.operations()}
	}
	return out
}

// condense makes few operations of many calls about a job, and changes no verdict: tries of an idempotent request are one
// that began with the first and ended with the first answer; and because a job never stands twice at one place, of all reads
// that found it there the one that ended first and the one that began last force all others.
type condense struct {
	submit, cancel request
	answers        map[position]*answers
}

type request struct {
	tries      int
	start, end Instant // end 0: never answered
	first      *Call
}

func (r *request) add(call *Call) {
	r.tries++
	if r.first == nil || call.Start < r.start {
		r.start, r.first = call.Start, call
	}
	if call.Outcome == OK && (r.end == 0 || call.End < r.end) {
		r.end = call.End
	}
}

type answers struct{ endedFirst, beganLast span }

// span is when a read was answered from the state.
type span struct {
	start, end Instant
	call       *Call
}

func (c *condense) read(p position, call *Call) {
	s := span{call.Start, call.End, call}
	if call.Op == OpWait {
		s.start = 0 // it says that the job had ended by then, not when
	}
	a := c.answers[p]
	if a == nil {
		c.answers[p] = &answers{s, s}
		return
	}
	if s.end < a.endedFirst.end {
		a.endedFirst = s
	}
	if s.start > a.beganLast.start {
		a.beganLast = s
	}
}

func (c *condense) operations() []porcupine.Operation {
	var all []porcupine.Operation
	add := func(in input, start, end Instant) {
		in.answered = end != 0
		if end == 0 {
			end = math.MaxInt64 // it may yet take effect
		}
		all = append(all, porcupine.Operation{Input: in, Call: int64(start), Return: int64(end)})
	}
	if c.submit.tries > 0 {
		add(input{op: submits, calls: "submit of " + c.submit.first.Client}, c.submit.start, c.submit.end)
	}
	if c.cancel.tries > 0 {
		add(input{op: cancels, calls: "cancel of " + c.cancel.first.Client}, c.cancel.start, c.cancel.end)
	}
	for p, a := range c.answers {
		read := func(s span) {
			add(input{op: reads, answer: p, calls: fmt.Sprintf("%s of %s", s.call.Op, s.call.Client)}, s.start, s.end)
		}
		read(a.endedFirst)
		if a.beganLast != a.endedFirst {
			read(a.beganLast)
		}
	}
	slices.SortFunc(all, func(a, b porcupine.Operation) int {
		if a.Call != b.Call {
			return int(min(max(a.Call-b.Call, -1), 1))
		}
		return strings.Compare(a.Input.(input).calls, b.Input.(input).calls)
	})
	for i := range all {
		all[i].ClientId = i
	}
	return all
}

// story tells operations in the order in which they began.
func (h *History) story(all []porcupine.Operation) string {
	var lines []string
	for _, o := range all {
		in := o.Input.(input)
		what, until := "", "never answered"
		if in.op == reads {
			what = " gave " + in.answer.String()
		}
		if o.Return != math.MaxInt64 {
			until = h.at(Instant(o.Return))
		}
		from := "before"
		if o.Call > 0 {
			from = h.at(Instant(o.Call))
		}
		lines = append(lines, fmt.Sprintf("%s (%s to %s)%s", in.calls, from, until, what))
	}
	return strings.Join(lines, "; ")
}
