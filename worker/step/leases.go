package step

import (
	"slices"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/exec"
)

// leases knows until when each allocation may run: from the moment when a renewal that named it was sent, if that was
// answered. The leader counts from its answer, which is later, and waits longer; so whatever the network did meanwhile, the
// end here comes first. An answer to a renewal that didn't name an allocation says nothing about it.
type leases struct {
	last uint64 // number of the newest renewal, over all sessions
	sent map[uint64]renewal
	ends map[muster.AllocID]exec.BootTime
}

// renewal is one that has not been answered yet.
type renewal struct {
	at        exec.BootTime
	allocs    []muster.AllocID
	overtaken bool // a newer one was answered: this one got lost on the way to a leader that died, or is only late
}

func newLeases() leases {
	return leases{sent: map[uint64]renewal{}, ends: map[muster.AllocID]exec.BootTime{}}
}

// send notes a renewal; now was read before it went out.
func (l *leases) send(now exec.BootTime, ids []muster.AllocID) (seq uint64) {
	l.last++
	l.sent[l.last] = renewal{at: now, allocs: ids}
	return l.last
}

// answered moves the ends of what the renewal named, and gives those that moved. length gives an allocation's lease; 0: it
// is not known any more.
func (l *leases) answered(seq uint64, length func(muster.AllocID) time.Duration) []muster.AllocID {
	r, ok := l.sent[seq]
	if !ok {
		return nil
	}
	delete(l.sent, seq)
	for older, o := range l.sent {
		if older < seq {
			o.overtaken = true
			l.sent[older] = o
		}
		if o.overtaken && r.at.Sub(o.at) > answerWithin {
			delete(l.sent, older)
		}
	}
	var moved []muster.AllocID
	for _, id := range r.allocs {
		if lease := length(id); lease > 0 && r.at.Add(lease) > l.ends[id] {
			l.ends[id] = r.at.Add(lease)
			moved = append(moved, id)
		}
	}
	return moved
}

// first is the end that a task is prepared with. Nothing starts before a renewal that names it was answered; this end counts
// from the earliest that may be, so that it never is too late.
func (l *leases) first(id muster.AllocID, lease time.Duration, now exec.BootTime) exec.BootTime {
	if end, ok := l.ends[id]; ok {
		return end
	}
	at := now
	for _, r := range l.sent {
		if slices.Contains(r.allocs, id) {
			at = min(at, r.at)
		}
	}
	return at.Add(lease)
}

// oldest is when the oldest renewal was sent that has no answer, nor any newer one; 0: there is none.
func (l *leases) oldest() exec.BootTime {
	var at exec.BootTime
	for _, r := range l.sent {
		if !r.overtaken && (at == 0 || r.at < at) {
			at = r.at
		}
	}
	return at
}

// hangUp forgets what a session has not answered: its answers can't come any more.
func (l *leases) hangUp() { clear(l.sent) }

func (l *leases) drop(id muster.AllocID) { delete(l.ends, id) }

// holds says whether a process that starts now has time before the kill.
func (l *leases) holds(id muster.AllocID, lease time.Duration, now exec.BootTime) bool {
	end, ok := l.ends[id]
	return ok && now < killTime(end, lease)
}

// killTime is when a supervisor kills for a lease that ends at end: max(2 s, 10 %) before.
func killTime(end exec.BootTime, lease time.Duration) exec.BootTime {
	return end.Add(-max(2*time.Second, lease/10))
}

// overdue says whether a supervisor that works would have killed by now, and half of what is left of the lease has passed.
func (l *leases) overdue(id muster.AllocID, lease time.Duration, now exec.BootTime) bool {
	end, ok := l.ends[id]
	return ok && now > killTime(end, lease).Add(end.Sub(killTime(end, lease))/2)
}

// The bounds of renewing.
const (
	renewAtMost  = 5 * time.Second
	answerWithin = 3 * time.Second // at least; a third of the shortest lease, at most 10 s
)

// renewEvery is the interval of renewals: min(5 s, shortest lease / 6).
func renewEvery(shortest time.Duration) time.Duration {
	if shortest <= 0 {
		return renewAtMost
	}
	return min(renewAtMost, shortest/6)
}

// Patience is how long a renewal may go without an answer before another server is asked.
func Patience(shortest time.Duration) time.Duration {
	if shortest <= 0 {
		shortest = muster.DefaultLease
	}
	return max(answerWithin, min(shortest/3, 10*time.Second))
}
