// Package scheduler decides which pending jobs start where. It is pure: View is its image of a snapshot of the replicated
// state, Schedule gives a Plan for it, Explain says why a job waits. No clock, no randomness, no log, no I/O.
package scheduler

import (
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// Signals is what the leader knows and the replicated state does not.
type Signals struct {
	Suspect map[muster.NodeID]string // no new work there, with the reason
	Load    map[muster.NodeID]int64  // CPU in use, in permille; only breaks ties between nodes that fit equally well
}

// MaxPlanRanks bounds a plan, so that committing it never stalls Apply. One gang wider than this makes a plan of its own.
const MaxPlanRanks = 4096

// Plan is what one pass decided.
type Plan struct {
	Gangs     []state.GangPlacement // in the order they were decided; a job is in one at most
	Unhold    []muster.JobID        // whose holds have become useless
	Evictions []state.Eviction      // after the gangs
	Claims    []state.QueueClaim    // that differ from the state's
	More      bool                  // the plan is full: commit it, advance, and schedule again
	Wake      muster.Time           // a further pass then may decide something though nothing changes; 0 = none would
}

// Empty says whether there is nothing to commit.
func (p *Plan) Empty() bool {
	return len(p.Gangs) == 0 && len(p.Unhold) == 0 && len(p.Evictions) == 0 && len(p.Claims) == 0
}

// Command is what the state has to be told of the plan.
func (p *Plan) Command(term uint64) *state.CommitPlan {
	return &state.CommitPlan{Term: term, Gangs: p.Gangs, Unhold: p.Unhold, Evictions: p.Evictions, Claims: p.Claims}
}

// agenda is a pass at work: the order of what waits, what was decided, and what is planned.
type agenda struct {
	*pass
	now     muster.Time
	policy  muster.Policy
	tree    *tree
	byShare bool // users stand in line by their shares
	quotas  bool // what a quota covers goes first, as it is now; else as queues are owed it
	owed    map[*bucket]int
	limits  *state.Limits // of queues, with what the plan takes
	lines   []line
	plan    Plan
	ranks   int

	timeline     []release // sorted; made when first asked for
	timed        bool
	reservations []reservation     // by start
	level        int               // so many of them keep what they need from whom is tried
	holds        []held            // by job
	entitled     map[*running]bool // run what their queue is owed
	evict        evictions
	kinds        kinds
}

// Schedule decides what starts now, what is stopped for it, and what is kept for later. Jobs are tried in the policy's order. A
// job starts as soon as its whole gang fits; the first ones that do not fit get planned starts, and later ones start only where they
// delay none of these. Equal views, signals and times give equal plans.
func Schedule(v *View, signals Signals, now muster.Time) Plan {
	a := v.open(signals, now)
	defer a.rollback(0)
	a.decide()
	return a.plan
}

// decide makes the pass. What it takes and plans is there until it is rolled back.
func (a *agenda) decide() {
	a.holdPlaces()
	a.claims()
	a.queueUp()
	for {
		turn := a.turn()
		if turn < 0 {
			return
		}
		l := &a.lines[turn]
		switch verdict := a.consider(l, l.heads[0]); verdict {
		case planFull:
			a.plan.More = true
			return
		case nobodyElse:
			return
		default:
			a.next(l, verdict == bucketDone)
		}
	}
}

// verdict says how the pass goes on after a job.
type verdict int

const (
	jobDone    verdict = iota
	bucketDone         // no other job of its bucket can be placed
	planFull
	nobodyElse // may start before it
)

// open makes a pass ready.
func (v *View) open(signals Signals, now muster.Time) *agenda {
	a := &agenda{pass: v.begin(signals), now: now, policy: v.snapshot.Policy(), limits: v.snapshot.Limits(),
		owed: map[*bucket]int{}}
	a.kept = map[int32]muster.SlotSet{}
	a.byShare = a.policy.Order == muster.OrderFair
	a.quotas = a.policy.FairShare && a.policy.Order != muster.OrderShortest
	for _, q := range v.queues {
		for _, u := range q.users { // each for itself
			u.using = amounts{}
		}
	}
	a.tree = v.tree(&a.policy, now)
	for _, q := range v.queues {
		for _, u := range q.users {
			u.share = a.tree.shareOf(&u.using)
		}
	}
	return a
}

// queueUp lines the queues' jobs up.
func (a *agenda) queueUp() {
	spaces := &a.v.spaces
	for i, q := range a.v.queues {
		if len(*spaces) <= i {
			*spaces = append(*spaces, nil)
		}
		l := a.newLine(q, (*spaces)[i])
		(*spaces)[i] = l.heads
		if len(l.heads) > 0 {
			a.lines = append(a.lines, l)
		}
	}
}

// consider decides on the first job of a line.
func (a *agenda) consider(l *line, h head) verdict {
	b, s := h.bucket, h.bucket.shape
	if h.tier == tierHeld {
		return a.tryHeld(h)
	}
	if a.atLimit(b) {
		return bucketDone
	}
	lasts := a.expected(b.key.user.name, b.key.kin, s.gpuMilli, b.key.limit, b.past.done)
	end := a.now.Add(lasts)
	if s.failed == a.number && end >= s.failedEnd {
		return a.blocked(h, lasts)
	}
	if width := s.ranks(); len(a.plan.Gangs) > 0 && a.ranks+width > MaxPlanRanks {
		return planFull
	}
	job, ok := a.v.snapshot.Job(h.job)
	if !ok {
		return jobDone
	}
	a.setLevel(a.levelOf(end))
	placed, ok := a.gang(s, job, false)
	waits := false
	if !ok {
		placed, waits, ok = a.wait(s, job)
	}
	switch {
	case ok:
		a.start(b, job, placed, end)
		return jobDone
	case waits: // its like may have waited longer
		return a.blocked(h, lasts)
	}
	if s.failed != a.number || end < s.failedEnd {
		s.failed, s.failedEnd = a.number, end
		if a.level == 0 {
			s.failedEnd = 0
		}
	}
	return a.blocked(h, lasts)
}

// start notes that a job starts.
func (a *agenda) start(b *bucket, job *muster.Job, placed []state.RankPlacement, end muster.Time) {
	a.plan.Gangs = append(a.plan.Gangs, state.GangPlacement{Job: job.ID, Attempt: job.Attempt + 1, Ranks: placed})
	a.ranks += len(placed)
	a.limits.Take(b.key.user.queue.name, b.key.user.name, muster.MilliGPUs(b.shape.gpuMilli))
	a.tree.start(b.key.user.queue, b.key.user, b.shape.gpuMilli, b.shape.need)
	a.addRelease(end, job.ID, placed)
}

// atLimit says whether a limit of their queue, or of one above it, keeps the jobs of a bucket from starting. They get no planned
// start either: when it ends depends on no node.
func (a *agenda) atLimit(b *bucket) bool {
	return a.limits.Hit(b.key.user.queue.name, b.key.user.name, muster.MilliGPUs(b.shape.gpuMilli)) != nil
}

// blocked decides what becomes of a job that cannot start now.
func (a *agenda) blocked(h head, lasts time.Duration) verdict {
	s := h.bucket.shape
	if !a.preempts() && a.depth() == 0 && a.policy.Backfill != muster.BackfillNone {
		return bucketDone // nothing is stopped for it, nothing kept
	}
	if !a.runnable(s) {
		return bucketDone
	}
	if a.preempts() {
		job, ok := a.v.snapshot.Job(h.job)
		if ok && a.preempt(&h, job) {
			return jobDone
		}
	}
	if s.unplanned == a.number {
		return bucketDone // nothing more is done for its like in this pass
	}
	if a.policy.Backfill == muster.BackfillNone {
		return nobodyElse
	}
	if len(a.reservations) >= a.depth() {
		s.unplanned = a.number
		return bucketDone
	}
	job, ok := a.v.snapshot.Job(h.job)
	if !ok {
		return jobDone
	}
	if !a.reserve(s, job, lasts) {
		s.unplanned = a.number
		return bucketDone
	}
	return jobDone
}

// maxConservative bounds how many jobs get planned starts when nobody may be delayed.
const maxConservative = 128

// depth is how many jobs get planned starts.
func (a *agenda) depth() int {
	switch {
	case a.policy.Order == muster.OrderShortest && a.policy.Preemption == muster.PreemptShortest:
		return 0 // whoever starts now may be stopped for whoever comes before it
	case a.policy.Backfill == muster.BackfillConservative:
		return maxConservative
	}
	return a.policy.Reservations
}

// begin makes the view's pass ready.
func (v *View) begin(signals Signals) *pass {
	p := &v.pass
	p.v = v
	p.number++
	p.out, p.loads = p.out[:0], nil
	v.refreshMix()
	if len(signals.Suspect) > 0 {
		for i := range v.nodes {
			if _, suspect := signals.Suspect[v.nodes[i].row.ID]; suspect {
				p.out.set(int32(i), true)
			}
		}
	}
	if len(signals.Load) > 0 {
		p.loads = signals.Load
		if len(p.load) < len(v.nodes) {
			p.load = make([]loadSeen, len(v.nodes))
		}
	}
	return p
}
