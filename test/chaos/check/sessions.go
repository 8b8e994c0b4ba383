package check

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhpc/muster"
)

// Sessions: the version of the state that reads are answered from never goes back within a session, stale reads included;
// and never from one read that is not stale to a later one, whoever makes them.
func Sessions(h *History) []Violation {
	c := complaints{checker: "sessions"}
	sessions := map[string][]*Call{}
	var linearizable []*Call
	for i := range h.Calls {
		call := &h.Calls[i]
		if call.Op != OpGet && call.Op != OpList || call.Outcome != OK || call.Version == (muster.Version{}) {
			continue
		}
		sessions[call.Session] = append(sessions[call.Session], call)
		if !call.Stale {
			linearizable = append(linearizable, call)
		}
	}
	for _, session := range slices.Sorted(maps.Keys(sessions)) {
		if back, before := goesBack(sessions[session]); back != nil {
			c.add(back.End, "session %s of %s read version %s (%s, answered at %s) and then version %s (%s, asked at %s): reads went back", session,
				back.Client, before.Version, before.kind(), h.at(before.End), back.Version, back.kind(), h.at(back.Start))
		}
	}
	if back, before := goesBack(linearizable); back != nil && back.Session != before.Session {
		c.add(back.End, "%s read version %s (%s, asked at %s) after %s had been answered from version %s at %s: not linearizable", back.Client,
			back.Version, back.kind(), h.at(back.Start), before.Client, before.Version, h.at(before.End))
	}
	return c.found
}

func (c *Call) kind() string {
	if c.Stale {
		return string(c.Op) + " --stale"
	}
	return string(c.Op)
}

// goesBack finds a read that began after another had ended, and was answered from an older version.
func goesBack(calls []*Call) (back, before *Call) {
	byStart, byEnd := slices.Clone(calls), slices.Clone(calls)
	slices.SortStableFunc(byStart, func(a, b *Call) int { return cmp.Compare(a.Start, b.Start) })
	slices.SortStableFunc(byEnd, func(a, b *Call) int { return cmp.Compare(a.End, b.End) })
	var newest *Call // of those that had ended
	for _, call := range byStart {
		for len(byEnd) > 0 && byEnd[0].End < call.Start {
			if newest == nil || newest.Version.Before(byEnd[0].Version) {
				newest = byEnd[0]
			}
			byEnd = byEnd[1:]
		}
		if newest != nil && call.Version.Before(newest.Version) {
			return call, newest
		}
	}
	return nil, nil
}
