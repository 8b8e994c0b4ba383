package check

import (
	"maps"
	"slices"
	"time"
)

// sameLine is how far apart the times of one line of a journal may come out when it is read twice.
const sameLine = 5 * time.Millisecond

// StartsOnce: each attempt of a rank is started at most once, by one allocation, as one process.
func StartsOnce(h *History) []Violation {
	c := complaints{checker: "starts once"}
	owner := map[tenure]*life{}
	for _, l := range h.lives() {
		if other := owner[l.tenure]; other != nil {
			c.add(l.begin(), "%s has two allocations: %s on %s and %s on %s", l.tenure, other.alloc, other.machine, l.alloc, l.machine)
		}
		owner[l.tenure] = l
		twice := func(events []Event, what string) {
			for i := 1; i < len(events); i++ {
				a, b := &events[0], &events[i]
				if a.PID == b.PID && a.Boot == b.Boot && machineOf(a.Machine, a.Node) == machineOf(b.Machine, b.Node) &&
					(a.Kind == Started && a.PID > 0 || b.Time.Sub(a.Time) < sameLine) {
					continue
				}
				c.add(b.Time, "%s %s twice: at %s as pid %d on %s (boot %s), and at %s as pid %d on %s (boot %s)", l, what,
					h.at(a.Time), a.PID, machineOf(a.Machine, a.Node), a.Boot, h.at(b.Time), b.PID, machineOf(b.Machine, b.Node), b.Boot)
			}
		}
		twice(l.intents, "was bound to start")
		twice(l.starts, "started")
	}
	beats := h.beats()
	for _, t := range slices.SortedFunc(maps.Keys(beats), compareTenures) {
		first := &beats[t][0]
		for i := range beats[t] {
			if b := &beats[t][i]; b.PID != first.PID || machineOf(b.Machine, b.Node) != machineOf(first.Machine, first.Node) {
				c.add(b.Time, "%s wrote as two processes: pid %d on %s at %s, and pid %d on %s at %s", t, first.PID, first.Node, h.at(first.Time),
					b.PID, b.Node, h.at(b.Time))
				break
			}
		}
		if l := owner[t]; len(h.Events) > 0 && (l == nil || l.begin() == 0) {
			c.add(first.Time, "the task of %s (pid %d on %s) wrote at %s, and no worker wrote down that it starts it", t, first.PID, first.Node, h.at(first.Time))
		}
	}
	return c.found
}

// NoOverlap: attempts of a rank follow each other, by what the workers wrote down and independently of that by what the
// tasks wrote themselves.
func NoOverlap(h *History) []Violation {
	c := complaints{checker: "no overlap"}
	places, lives := byPlace(h.lives())
	for _, p := range places {
		var latest *life // of those begun, the one that ends last
		for _, l := range lives[p] {
			if latest != nil && l.begin() < latest.end() && !h.stoodStill(latest.machine, l.begin(), latest.end()) {
				c.add(l.begin(), "%s started at %s while %s still ran: it was gone at %s, %v later", l, h.at(l.begin()), latest, h.at(latest.end()),
					latest.end().Sub(l.begin()))
			}
			if latest == nil || l.end() > latest.end() {
				latest = l
			}
		}
	}
	tasks := map[place][]Beat{} // the first line of each attempt
	beats := h.beats()
	for t, lines := range beats {
		tasks[t.place] = append(tasks[t.place], lines[0])
	}
	for _, p := range slices.SortedFunc(maps.Keys(tasks), comparePlaces) {
		slices.SortFunc(tasks[p], func(a, b Beat) int { return int(a.Attempt) - int(b.Attempt) })
		for i := 1; i < len(tasks[p]); i++ {
			next := &tasks[p][i]
			before := beats[tasks[p][i-1].tenure()]
			last := &before[len(before)-1]
			if last.Time > next.Time && !h.stoodStill(machineOf(last.Machine, last.Node), next.Time, last.Time) {
				c.add(next.Time, "the task of %s (pid %d on %s) wrote at %s, and that of %s (pid %d on %s) still wrote at %s", next.tenure(),
					next.PID, next.Node, h.at(next.Time), last.tenure(), last.PID, last.Node, h.at(last.Time))
			}
		}
	}
	return c.found
}
