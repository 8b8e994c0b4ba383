package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// All checkers, in the order in which a report shows them.
var checkers = []func(*History) []Violation{
	Submissions, Cancels, Linearizable, StartsOnce, NoOverlap, OneOwner, EndsStay, Gangs, Exits, Digests, Sessions, NothingOutlives,
	Liveness, Availability,
}

// Report is what a run came to.
type Report struct {
	Run             Run
	Faults          map[string]int // by kind
	Calls           int
	Unknown         int // answers
	Refused         int
	Jobs            int
	Attempts        int
	LongestGap      time.Duration // without an acknowledged submission, whatever the faults
	LongestGapAt    Instant
	JudgedGap       time.Duration // the longest while a majority was up and well connected
	LongestRecovery time.Duration // from the end of a fault to the next acknowledged submission
	RecoveryAfter   string        // the kind of that fault
	Violations      []Violation
	Notes           []string // what could not be judged
}

// All runs every checker over the history.
func All(h *History) Report {
	r := Report{Run: h.Run, Faults: map[string]int{}, Calls: len(h.Calls), Jobs: len(h.Final.Jobs)}
	for i := range h.Faults {
		r.Faults[h.Faults[i].Kind]++
	}
	for i := range h.Calls {
		switch h.Calls[i].Outcome {
		case Unknown:
			r.Unknown++
		case Refused:
			r.Refused++
		}
	}
	for i := range h.Final.Jobs {
		r.Attempts += int(h.Final.Jobs[i].Attempt)
	}
	longest := h.longestGap()
	r.LongestGap, r.LongestGapAt = longest.length(), longest.from
	judged, _ := h.longestJudgedGap()
	r.JudgedGap = judged.length()
	r.LongestRecovery, r.RecoveryAfter = h.longestRecovery()
	for _, checker := range checkers {
		r.Violations = append(r.Violations, checker(h)...)
	}
	r.Notes = h.missing()
	return r
}

// missing says which evidence a run lacks, and what was not judged for it.
func (h *History) missing() []string {
	var notes []string
	lacks := func(absent bool, what string) {
		if absent {
			notes = append(notes, what)
		}
	}
	lacks(len(h.Calls) == 0, "no calls of clients: nothing that they were promised was judged")
	lacks(len(h.Events) == 0, "no events of workers: starts, overlaps, slots and exits were judged by the tasks' own lines and the API only")
	lacks(len(h.Events) > 0 && !h.recordsReady(), "no worker wrote down when ranks were ready: barriers were not judged")
	lacks(len(h.Beats) == 0, "no lines of tasks: overlaps and outliving were judged by the workers' events only")
	lacks(len(h.Digests) == 0, "no digests: the servers' states were not compared")
	lacks(h.Final.Time == 0, "no state of the end: what exists, and liveness, were not judged")
	lacks(len(h.Run.Servers) == 0, "the servers are not named: gaps were not judged")
	return notes
}

// shown is how many violations of one checker a report spells out.
const shown = 10

func (r Report) String() string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-18s %s\n", label, fmt.Sprintf(format, args...))
	}
	line("seed", "%d, %v long", r.Run.Seed, r.Run.End.Sub(r.Run.Start).Round(time.Second))
	total := 0
	for _, n := range r.Faults {
		total += n
	}
	line("faults", "%d", total)
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		line("", "%4d %s", r.Faults[kind], kind)
	}
	line("calls", "%d, of which %d refused", r.Calls, r.Refused)
	line("unknown answers", "%d", r.Unknown)
	line("jobs", "%d", r.Jobs)
	line("attempts", "%d", r.Attempts)
	line("longest gap", "%v without an acknowledged submission, at %s; %v while a majority was well",
		r.LongestGap.Round(time.Millisecond), (&History{Run: r.Run}).at(r.LongestGapAt), r.JudgedGap.Round(time.Millisecond))
	if r.RecoveryAfter != "" {
		line("longest recovery", "%v, after %s", r.LongestRecovery.Round(time.Millisecond), r.RecoveryAfter)
	}
	for _, note := range r.Notes {
		line("not judged", "%s", note)
	}
	line("violations", "%d", len(r.Violations))
	printed := map[string]int{}
	for _, v := range r.Violations {
		if printed[v.Checker]++; printed[v.Checker] <= shown {
			fmt.Fprintf(&b, "  %s\n", v)
		}
	}
	for _, checker := range slices.Sorted(maps.Keys(printed)) {
		if more := printed[checker] - shown; more > 0 {
			fmt.Fprintf(&b, "  %s: and %d more\n", checker, more)
		}
	}
	if len(r.Violations) > 0 && r.Run.Replay != "" {
		line("replay", "%s", r.Run.Replay)
	}
	return b.String()
}
