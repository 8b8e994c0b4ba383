package state

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/musterhpc/muster"
)

// UsageRow is what a user's jobs in a queue hold now, and what they have used, the older the less: a half-life ago counts half.
type UsageRow struct {
	Queue string
	User  string

	MilliGPUs  int64 // held now
	MilliCores muster.MilliCores
	Memory     muster.Bytes

	Used  Used
	Since muster.Time // until when Used is reckoned
}

// Used is resource time.
type Used struct {
	GPUs   int64 // milli-GPUs × milliseconds
	Cores  int64 // milli-cores × milliseconds
	Memory int64 // MemoryUnit × milliseconds
}

// MemoryUnit is in what the use of memory is counted: bytes would not last for a large cluster's months.
const MemoryUnit = 64 * muster.MiB

// usageKey orders usage rows.
type usageKey struct{ queue, user string }

func (k usageKey) less(o usageKey) bool {
	if k.queue != o.queue {
		return k.queue < o.queue
	}
	return k.user < o.user
}

// EntryPenalty is charged at each placement, so that a burst of tiny jobs is not for nothing.
const EntryPenalty = time.Minute

// ticks in a half-life: use decays in steps.
const ticks = 1024

// tickDecay is 2^(-1/ticks) · 2^32.
const tickDecay = 4292061010

// idleTicks is after how many ticks of one rate use is as good as settled: sixteen half-lives.
const idleTicks = 16 * ticks

func decay(v int64) int64 {
	high, low := bits.Mul64(uint64(v), tickDecay)
	return int64(high<<32 | low>>32)
}

// usage gives a row of use to be changed, brought up to now.
func (s *State) usage(queue, user string) *UsageRow {
	key := usageKey{queue, user}
	u, _ := s.t.usage.edit(key, &s.w)
	if u == nil {
		u = s.t.usage.insert(key, UsageRow{Queue: queue, User: user, Since: s.now()}, &s.w)
	}
	u.pass(s.now(), s.halfLife())
	return u
}

func (s *State) halfLife() time.Duration {
	h := muster.DefaultPolicy().HalfLife
	if p := s.t.cluster.Policy; p != nil && p.HalfLife > 0 {
		h = p.HalfLife
	}
	return h
}

// pass reckons use until now.
func (u *UsageRow) pass(now muster.Time, halfLife time.Duration) {
	if now <= u.Since {
		return
	}
	tick := max(1, muster.Time(halfLife.Milliseconds()/ticks))
	first := (u.Since/tick + 1) * tick
	if now < first {
		u.grow(now)
		return
	}
	u.grow(first)
	u.decay()
	for n := min((now-u.Since)/tick, idleTicks); n > 0; n-- {
		u.grow(u.Since + tick)
		u.decay()
	}
	u.Since = max(u.Since, now/tick*tick)
	u.grow(now)
}

// grow adds what is held until a time.
func (u *UsageRow) grow(until muster.Time) {
	dt := int64(until - u.Since)
	u.Used.GPUs += u.MilliGPUs * dt
	u.Used.Cores += int64(u.MilliCores) * dt
	u.Used.Memory += int64(u.Memory/MemoryUnit) * dt
	u.Since = until
}

func (u *UsageRow) decay() {
	u.Used.GPUs, u.Used.Cores, u.Used.Memory = decay(u.Used.GPUs), decay(u.Used.Cores), decay(u.Used.Memory)
}

// charge notes that a user's jobs in a queue hold more, or with sign -1 less, by an allocation.
func (s *State) charge(j *muster.Job, a *muster.Allocation, sign int64) *UsageRow {
	u := s.usage(j.Queue, j.User)
	u.MilliGPUs += sign * milliGPUs(a)
	u.MilliCores += muster.MilliCores(sign) * a.MilliCores
	u.Memory += muster.Bytes(sign) * a.Memory
	return u
}

// penalize charges what a placement costs beside what it takes.
func (u *UsageRow) penalize(a *muster.Allocation) {
	penalty := EntryPenalty.Milliseconds()
	u.Used.GPUs += milliGPUs(a) * penalty
	u.Used.Cores += int64(a.MilliCores) * penalty
	u.Used.Memory += int64(a.Memory/MemoryUnit) * penalty
}

// milliGPUs is how much of GPUs an allocation holds.
func milliGPUs(a *muster.Allocation) int64 { return int64(a.MilliGPUs()) }

// owe reckons until now what a queue and those above it are owed: before anything changes that it hangs on.
func (s *State) owe(queue string) {
	for name := queue; ; {
		if q := s.t.queues.get(name); q != nil && q.OwedAt != s.now() && (q.Claim > 0 || q.Owed != 0) {
			row := s.queue(name)
			row.Owed, row.OwedAt = row.OwedUntil(s.now(), s.t.heldBelow(name)), s.now()
		}
		at := strings.LastIndexByte(name, '/')
		if at < 0 {
			return
		}
		name = name[:at]
	}
}

// heldBelow is how many GPUs a queue holds with those below it.
func (t *tables) heldBelow(name string) int {
	n := 0
	for q := range t.queues.from(name) {
		if q.Name == name || strings.HasPrefix(q.Name, name+"/") {
			n += q.HeldGPUs()
		} else if !strings.HasPrefix(q.Name, name) {
			break
		}
	}
	return n
}

// claim takes over what a queue would run of its own.
func (s *State) claim(c *QueueClaim) {
	if q := s.t.queues.get(c.Queue); q == nil || q.Claim == c.GPUs {
		return
	}
	row := s.queue(c.Queue)
	row.Owed, row.OwedAt = row.OwedUntil(s.now(), s.t.heldBelow(c.Queue)), s.now()
	row.Claim = c.GPUs
}

// checkUsage recounts what users hold.
func (t *tables) checkUsage() error {
	type held struct {
		gpus   int64
		cores  muster.MilliCores
		memory muster.Bytes
	}
	if t.usage.len() == 0 {
		return nil // of an earlier release: see beginUsage
	}
	have := map[usageKey]held{}
	for a := range t.allocs.all() {
		if a.Phase == muster.AllocEnded {
			continue
		}
		j := t.jobs.get(a.Job)
		h := have[usageKey{j.Queue, j.User}]
		h.gpus += milliGPUs(a)
		h.cores += a.MilliCores
		h.memory += a.Memory
		have[usageKey{j.Queue, j.User}] = h
	}
	for u := range t.usage.all() {
		key := usageKey{u.Queue, u.User}
		if is := (held{u.MilliGPUs, u.MilliCores, u.Memory}); is != have[key] {
			return fmt.Errorf("use of %s in %s counts %+v; a recount gives %+v", u.User, u.Queue, is, have[key])
		}
		delete(have, key)
	}
	for key := range have {
		return fmt.Errorf("%s has allocations in %s and no row of use", key.user, key.queue)
	}
	return nil
}

// beginUsage counts what users hold when the state is from a release that had no such rows: with the first entry, not when it
// is restored, so that a snapshot's digest holds.
func (s *State) beginUsage() {
	if s.t.usage.len() > 0 || s.t.nodeAllocs.tree.Len() == 0 {
		return
	}
	for a := range s.t.allocs.all() {
		if a.Phase == muster.AllocEnded {
			continue
		}
		j := s.t.jobs.get(a.Job)
		s.charge(j, a, 1)
	}
}
