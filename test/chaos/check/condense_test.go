package check

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/musterhpc/muster"
)

// Few operations that stand for many are ordered just when the many can be: over random calls, most of them about a real course
// of a job and some of them wrong, the verdict is that of all calls taken one by one.
func TestCondensedCallsGetTheVerdictOfAllCalls(t *testing.T) {
	verdicts := map[bool]int{}
	for seed := range uint64(3000) {
		h := randomCalls(rand.New(rand.NewPCG(seed, 1)))
		all := oneByOne(h)
		want := porcupine.CheckOperationsTimeout(jobModel(true), all, 10*time.Second)
		if want == porcupine.Unknown {
			continue
		}
		got := len(Linearizable(h)) == 0
		if got != (want == porcupine.Ok) {
			t.Fatalf("seed %d: condensed: in order %v; one by one: %v\n%s", seed, got, want, h.story(all))
		}
		verdicts[got]++
	}
	if verdicts[true] < 300 || verdicts[false] < 300 {
		t.Errorf("the verdicts are too much alike to mean something: %v", verdicts)
	}
}

// randomCalls lets a job take a course in virtual time, and clients see and cancel it, some of them wrongly.
func randomCalls(r *rand.Rand) *History {
	course := []position{{}, {"pending", 0}, {"preparing", 1}, {"running", 1}, {"stopping", 1}, {"pending", 1}, {"preparing", 2}, {"running", 2}, {"succeeded", 2}}
	begins := make([]Instant, len(course)) // when it comes to stand there
	for i := 1; i < len(course); i++ {
		begins[i] = begins[i-1] + Instant(1+r.IntN(20))
	}
	cancelled := Instant(-1)
	if r.IntN(2) == 0 { // the cancel takes effect at one of the places
		i := 1 + r.IntN(len(course)-2)
		cancelled = begins[i] + Instant(r.IntN(int(begins[i+1]-begins[i])))
		course, begins = course[:i+1], begins[:i+1]
		attempt := course[i].attempt
		if p := course[i].state; p != "pending" {
			course, begins = append(course, position{"stopping", attempt}), append(begins, cancelled)
		}
		course, begins = append(course, position{"cancelled", attempt}), append(begins, cancelled+Instant(r.IntN(10)))
	}
	standing := func(at Instant) position {
		var p position
		for i := range course {
			if begins[i] <= at {
				p = course[i]
			}
		}
		return p
	}
	h := &History{}
	around := func(c Call, effect Instant) {
		c.Client = fmt.Sprint("c", len(h.Calls))
		c.Start, c.End = effect-Instant(r.IntN(8)), effect+Instant(r.IntN(8))
		h.Calls = append(h.Calls, c)
	}
	outcome := func() Outcome { return []Outcome{OK, OK, Unknown}[r.IntN(3)] }
	submit := Call{Op: OpSubmit, Request: "r", Names: []string{"n"}, Jobs: []muster.JobID{1}, Outcome: outcome()}
	around(submit, begins[1])
	if r.IntN(3) == 0 {
		around(submit, begins[1]+Instant(r.IntN(5)))
	}
	if cancelled >= 0 {
		around(Call{Op: OpCancel, Jobs: []muster.JobID{1}, Outcome: outcome()}, cancelled)
	}
	for range r.IntN(3) {
		from := max(cancelled, 0)
		if cancelled < 0 {
			from = begins[len(begins)-1]
		}
		around(Call{Op: OpCancel, Jobs: []muster.JobID{1}, Outcome: outcome()}, from+Instant(r.IntN(10)))
	}
	for range 3 + r.IntN(9) {
		at := Instant(r.IntN(int(begins[len(begins)-1]) + 10))
		p := standing(at)
		if r.IntN(6) == 0 { // somebody is answered from the past
			p = standing(at - Instant(r.IntN(50)))
		}
		if p.state == "" {
			around(Call{Op: OpGet, Jobs: []muster.JobID{1}, Outcome: Refused, Refusal: muster.KindNotFound}, at)
			continue
		}
		around(Call{Op: OpGet, Jobs: []muster.JobID{1}, Outcome: OK, Seen: []Seen{{Job: 1, Name: "n", State: p.state, Attempt: p.attempt}}}, at)
	}
	h.Final.Jobs = []Job{{ID: 1, Name: "n"}}
	return h
}

// oneByOne makes an operation of each call.
func oneByOne(h *History) []porcupine.Operation {
	var all []porcupine.Operation
	for i := range h.Calls {
		call := &h.Calls[i]
		one := condense{answers: map[position]*answers{}}
		switch {
		case call.Op == OpSubmit:
			one.submit.add(call)
		case call.Op == OpCancel:
			one.cancel.add(call)
		case call.Outcome == Refused:
			one.read(position{}, call)
		default:
			one.read(positionOf(&call.Seen[0]), call)
		}
		all = append(all, one.operations()...)
	}
	for i := range all {
		all[i].ClientId = i
	}
	return all
}
