package simulation

import (
	"fmt"
	"reflect"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/worker/step"
)

// judge sees everything, at once and as it is, and says the first thing that breaks a promise.
type judge struct {
	w       *world
	promise string // that was broken; "" = none was
	failure string
	at      time.Duration

	leaders map[uint64]int    // who was elected in a term
	entries map[uint64]uint64 // term of the entry at each index that was committed
	digests map[uint64]uint64 // of the state at each index
	newest  uint64            // index that some server has applied
	allocs  map[muster.AllocID]*allocSeen
	jobs    map[muster.JobID]*muster.Job // ended ones, as they ended
	named   map[string]muster.JobID      // a submission makes one job
	alive   map[muster.AllocID]*process
	ranks   map[attemptKey]map[muster.AllocID]bool // ranks of an attempt that were ready
	checked uint64
	told    map[muster.JobID]time.Duration // cancels that were acknowledged
}

type allocSeen struct {
	job     muster.JobID
	attempt uint32
	group   int
	rank    int
	started bool
	ended   *muster.Allocation // as the state has it
	process *process
}

type rankKey struct {
	job   muster.JobID
	group int
	rank  int
}

type attemptKey struct {
	job     muster.JobID
	attempt uint32
}

// atRest is the promise that everything comes to its end.
const atRest = "rest"

const (
	checkEvery = 97          // entries between two checks of every invariant of the state
	wakeGrace  = time.Second // in which a machine that was suspended kills what has expired
)

func newJudge(w *world) *judge {
	return &judge{
		w: w, leaders: map[uint64]int{}, entries: map[uint64]uint64{}, digests: map[uint64]uint64{},
		allocs: map[muster.AllocID]*allocSeen{}, jobs: map[muster.JobID]*muster.Job{}, named: map[string]muster.JobID{},
		alive: map[muster.AllocID]*process{}, ranks: map[attemptKey]map[muster.AllocID]bool{}, told: map[muster.JobID]time.Duration{},
	}
}

// fail takes in that a promise was broken. The first one counts.
func (j *judge) fail(promise, format string, args ...any) {
	if j.failure == "" {
		j.promise = promise
		j.failure, j.at = fmt.Sprintf(format, args...), j.w.now
		j.w.say("judge", "%s", j.failure)
	}
}

// name is how people call an allocation.
func (j *judge) name(id muster.AllocID) string {
	if a := j.allocs[id]; a != nil {
		return fmt.Sprintf("%s (job %d, attempt %d, rank %d)", id, a.job, a.attempt, a.rank)
	}
	return id.String()
}

func (j *judge) elected(s *server) {
	if other, ok := j.leaders[s.disk.term]; ok && other != s.number {
		j.fail("agreement", "two leaders in term %d", s.disk.term)
	}
	j.leaders[s.disk.term] = s.number
}

// committed: an index holds one entry, for ever.
func (j *judge) committed(s *server, index uint64, e logEntry) {
	if term, ok := j.entries[index]; ok && term != e.term {
		j.fail("agreement", "%s has committed at index %d an entry of term %d, another server one of term %d", s.name, index, e.term, term)
	}
	j.entries[index] = e.term
}

// applied: servers agree at equal index; what has ended stays; nothing runs that the state holds to have ended.
func (j *judge) applied(s *server, index uint64, changed state.Changed) {
	snapshot := s.snapshot()
	if digest, ok := j.digests[index]; ok {
		if digest != snapshot.Digest() {
			j.fail("agreement", "%s has another state at index %d than another server", s.name, index)
		}
		return
	}
	j.digests[index] = snapshot.Digest()
	if index < j.newest {
		return
	}
	j.newest = index
	j.w.counts.Entries++
	for _, id := range changed.Jobs {
		j.look(snapshot, id)
	}
	if j.checked++; j.checked%checkEvery == 0 {
		j.check(s)
	}
}

func (j *judge) check(s *server) {
	if err := s.snapshot().CheckInvariants(); err != nil {
		j.fail("invariants", "%s: %v", s.name, err)
	}
}

func (j *judge) look(snapshot *state.Snapshot, id muster.JobID) {
	job, ok := snapshot.Job(id)
	if was := j.jobs[id]; was != nil {
		if ok && !reflect.DeepEqual(was, job) {
			j.fail("final", "job %d had ended as %s, and is %s", id, was.Phase, job.Phase)
		}
		return
	}
	if !ok {
		j.fail("durable", "job %d is gone, and has not ended", id)
		return
	}
	if first, known := j.named[job.Name]; known && first != id {
		j.fail("submitted once", "submission %s made two jobs, %d and %d", job.Name, first, id)
	}
	j.named[job.Name] = id
	if job.Phase.Terminal() {
		j.jobs[id] = job
		j.w.counts.Ended++
		j.w.say("state", "job %d is %s %s", id, job.Phase, job.Reason)
	}
	for a := range snapshot.AllocsOfAttempt(id, job.Attempt) {
		seen := j.allocs[a.ID]
		if seen == nil {
			seen = &allocSeen{job: id, attempt: a.Attempt, group: a.Group, rank: a.Rank}
			j.allocs[a.ID] = seen
			j.w.say("state", "job %d: attempt %d, rank %d is %s on node %d, slots %s", id, a.Attempt, a.Rank, a.ID, a.Node, a.Slots)
		}
		switch {
		case seen.ended != nil:
			if *seen.ended != *a {
				j.fail("final", "allocation %s had ended, and has changed", j.name(a.ID))
			}
		case a.Phase == muster.AllocEnded:
			seen.ended = a
			j.w.say("state", "%s has ended: %s %s", j.name(a.ID), a.Class, a.Message)
			j.freed(a, seen)
		}
	}
}

// freed: when the state holds an allocation to have ended, its process is gone, and what it says of the end is what happened.
func (j *judge) freed(a *muster.Allocation, seen *allocSeen) {
	p := j.alive[a.ID]
	if p != nil && !j.excused(p.m) {
		j.fail("one owner", "the state holds %s to have ended (%s, %s), and its process runs on %s", j.name(a.ID), a.Class, a.Message, p.m.name)
		return
	}
	if p = seen.process; p == nil {
		if a.Class == muster.ClassNone || a.Class == muster.ClassExit {
			j.fail("exits", "the state says of %s that it exited with code %d, and it never ran", j.name(a.ID), a.ExitCode)
		}
		return
	}
	switch own := p.signal == 0; {
	case a.Class == muster.ClassNone && (!own || p.code != 0), a.Class == muster.ClassExit && own && p.code != a.ExitCode:
		j.fail("exits", "the state says of %s that it exited with code %d, and it did with code %d, signal %d", j.name(a.ID), a.ExitCode, p.code, p.signal)
	}
}

// excused: a machine that is suspended can't kill; it does within a second of waking.
func (j *judge) excused(m *machine) bool {
	return m.asleep || m.woke > 0 && j.w.now-m.woke <= wakeGrace
}

func (j *judge) woke(m *machine) {
	j.w.wire.at(wakeGrace+10*time.Millisecond, func() {
		if j.excused(m) || !m.up {
			return
		}
		for _, id := range sortedIDs(m.procs) {
			if seen := j.allocs[id]; seen != nil && seen.ended != nil {
				j.fail("one owner", "%s has ended for the state, and runs on %s, which woke a second ago", j.name(id), m.name)
			}
		}
	})
}

func (j *judge) ready(id muster.AllocID) {
	seen := j.allocs[id]
	if seen == nil {
		j.fail("started once", "%s is ready, and no server has placed it", id)
		return
	}
	key := attemptKey{seen.job, seen.attempt}
	if j.ranks[key] == nil {
		j.ranks[key] = map[muster.AllocID]bool{}
	}
	j.ranks[key][id] = true
	j.w.say(j.name(id), "is ready")
}

// forked: an attempt starts at most once, alone in its place, on slots that are free, and not before its whole gang is ready.
func (j *judge) forked(p *process, a *step.Assignment) {
	j.w.counts.Started++
	j.w.say(p.m.name, "starts %s, slots %s", j.name(p.id), p.slots)
	seen := j.allocs[p.id]
	switch {
	case seen == nil:
		j.fail("started once", "%s starts on %s, and no server has placed it", p.id, p.m.name)
		return
	case seen.started:
		j.fail("started once", "%s starts a second time, on %s", j.name(p.id), p.m.name)
	case seen.ended != nil && !j.excused(p.m):
		j.fail("one owner", "%s starts on %s, and has ended for the state", j.name(p.id), p.m.name)
	}
	seen.started, seen.process = true, p
	for _, id := range sortedIDs(j.alive) {
		other := j.alive[id]
		if other.rank == p.rank && !j.excused(other.m) {
			j.fail("no overlap", "%s starts on %s while %s still runs on %s", j.name(p.id), p.m.name, j.name(id), other.m.name)
		}
		if other.m == p.m && other.slots&p.slots != 0 {
			j.fail("one owner", "%s starts on slots of %s that %s still uses", j.name(p.id), p.m.name, j.name(id))
		}
	}
	if ready := len(j.ranks[attemptKey{seen.job, seen.attempt}]); ready < len(a.Peers) && len(a.Peers) > 1 {
		j.fail("all or none", "%s starts when %d of %d ranks of its gang have been ready", j.name(p.id), ready, len(a.Peers))
	}
	j.alive[p.id] = p
}

func (j *judge) died(p *process) {
	delete(j.alive, p.id)
	j.w.counts.Gone++
	j.w.say(p.m.name, "%s is gone (code %d, signal %d)", j.name(p.id), p.code, p.signal)
}

// reported is what an agent says of an end.
func (j *judge) reported(m *machine, end muster.AllocReport, _ bool) {
	if p := j.alive[end.ID]; p != nil && p.m == m {
		j.fail("exits", "the agent on %s says that %s has ended, and its process runs", m.name, j.name(end.ID))
	}
}

// disowned is that an agent kills what the servers are said not to know any more.
func (j *judge) disowned(m *machine, id muster.AllocID) {
	if seen := j.allocs[id]; seen != nil && seen.ended == nil && j.alive[id] != nil {
		j.fail("no older view", "the agent on %s kills %s as unknown to the servers, and no server holds it to have ended", m.name, j.name(id))
	}
}

// cancelled: what was cancelled does not run longer than a lease after the answer, and the time that it is given to end in.
func (j *judge) cancelled(job *JobPlan, id muster.JobID) {
	limit := time.Duration(float64(job.Lease)*1.05) + job.Grace + job.KillTimeout + 2*time.Second
	j.w.wire.at(limit, func() {
		for _, alloc := range sortedIDs(j.alive) {
			if p := j.alive[alloc]; p.job == id && !j.excused(p.m) {
				j.fail("cancels", "%s runs on %s, %v after the answer to its cancel", j.name(alloc), p.m.name, limit)
			}
		}
	})
}

// rest is what must hold once faults are over and time has passed.
func (j *judge) rest() {
	w := j.w
	if w.leader() == nil {
		j.fail(atRest, "no server leads")
		return
	}
	s := w.leader()
	snapshot := s.snapshot()
	j.check(s)
	for job := range snapshot.Jobs(0) {
		if !job.Phase.Terminal() && job.Phase != muster.JobHeld {
			nodes := ""
			for n := range snapshot.Nodes() {
				nodes += fmt.Sprintf(" %s is %s, free %s;", n.Name, n.State(), n.FreeSlots)
			}
			j.fail(atRest, "job %d is still %s, back-off %v;%s", job.ID, job.Phase, job.Backoff, nodes)
		}
	}
	for n := range snapshot.Nodes() {
		if n.Allocs != 0 || n.FreeSlots != n.UsableSlots() || n.FreeMilliCores != n.MilliCores || n.FreeMemory != n.Memory {
			j.fail(atRest, "%s is not free at rest: %d allocations, slots %s", n.Name, n.Allocs, n.FreeSlots)
		}
	}
	for q := range snapshot.Queues() {
		if q.Pending+q.Running+q.GPUs != 0 {
			j.fail(atRest, "queue %s counts %d pending, %d running, %d GPUs at rest", q.Name, q.Pending, q.Running, q.GPUs)
		}
	}
	for _, o := range w.servers {
		if o.applied == s.applied && o.snapshot().Digest() != snapshot.Digest() {
			j.fail("agreement", "%s and %s differ at rest", o.name, s.name)
		}
	}
	for _, c := range w.clients.jobs {
		if !c.acked {
			j.fail(atRest, "submission %s was never acknowledged", c.plan.Name)
			continue
		}
		if _, ok := snapshot.Job(c.id); !ok && j.jobs[c.id] == nil {
			j.fail("durable", "submission %s was acknowledged as job %d, which does not exist", c.plan.Name, c.id)
		}
	}
	if len(j.alive) > 0 {
		j.fail(atRest, "%d processes run at rest", len(j.alive))
	}
}
