package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// running is a job that holds resources, as the view keeps it.
type running struct {
	job   *muster.Job
	spec  *muster.JobSpec
	queue *queue
	user  *user
	gpus  int64 // of what it still holds
	kin   kinID
	live  int       // allocations that have not ended, as the row counts them
	holds []holding // by allocation number
	past  past      // before the attempt that runs

	valued uint64 // number of the pass that value is of
	value  float64
}

// holding is one allocation that has not ended.
type holding struct {
	node  int32
	alloc *muster.Allocation
}

// past is what a job has behind it when an attempt begins, or while it waits for one.
type past struct {
	done   time.Duration // run time whose work was saved
	waited time.Duration // until it became pending last
	since  muster.Time   // when it became pending last
	repair bool          // the cluster ended its last attempt by a fault: it comes before fresh work of equal rank
}

// pastOf reads a job's past; of a placed one, before its newest attempt.
func pastOf(j *muster.Job, spec *muster.JobSpec) past {
	p := past{since: j.Submitted}
	attempts := j.Attempts
	if j.Phase.Placed() && len(attempts) > 0 {
		attempts = attempts[:len(attempts)-1]
	}
	for i := range attempts {
		a := &attempts[i]
		p.waited += max(0, a.Placed.Sub(p.since))
		p.since = a.Ended
		if a.Started > 0 && spec != nil && saves(spec) {
			p.done += max(0, a.Ended.Sub(a.Started)-lost(spec, a.Class))
		}
		p.repair = a.Class.CountsForLoopGuard()
	}
	return p
}

// saves says whether a job's work outlives an attempt.
func saves(s *muster.JobSpec) bool {
	for i := range s.Groups {
		if c := &s.Groups[i].Checkpoint; c.Every > 0 || c.Grace > 0 || c.Signal != "" {
			return true
		}
	}
	return false
}

// lost is how much of its work an attempt that ended so is expected to have lost: nothing when the job was asked to save itself,
// else half the distance of its own checkpoints; with none, unknown, the hour that checkpoints are usually apart.
func lost(s *muster.JobSpec, class muster.Class) time.Duration {
	asked := class == muster.ClassPreempted || class == muster.ClassDrain || class == muster.ClassTimeout
	every := time.Duration(0)
	for i := range s.Groups {
		c := &s.Groups[i].Checkpoint
		if asked && (c.Grace > 0 || c.Signal != "") {
			return 0
		}
		every = max(every, c.Every)
	}
	if every == 0 {
		every = time.Hour
	}
	return every / 2
}

// started is when the attempt at work began to run; before that, now.
func (r *running) started(now muster.Time) muster.Time {
	if n := len(r.job.Attempts); n > 0 && r.job.Attempts[n-1].Started > 0 {
		return r.job.Attempts[n-1].Started
	}
	return now
}

// placed is when the attempt at work got its resources.
func (r *running) placed() muster.Time { return r.job.Attempts[len(r.job.Attempts)-1].Placed }

// stopping says whether the job was asked to end: what it holds is on its way to be free.
func (r *running) stopping() bool { return r.job.Phase == muster.JobStopping }

// setRunning brings what the view keeps of a job's resources up to date; is false when it holds none.
func (v *View) setRunning(id muster.JobID, row *muster.Job, is bool) {
	at, was := v.findRunning(id)
	if !is || !row.Phase.Placed() || len(row.Attempts) == 0 {
		if was {
			v.running[at].leave()
			v.running = slices.Delete(v.running, at, at+1)
		}
		return
	}
	live := row.Attempts[len(row.Attempts)-1].Live
	if was && v.running[at].job.Attempt == row.Attempt && v.running[at].live == live && v.running[at].job.Queue == row.Queue {
		v.running[at].job = row
		return
	}
	if was {
		v.running[at].leave()
	} else {
		v.running = slices.Insert(v.running, at, &running{})
	}
	r := v.running[at]
	spec := v.snapshot.Spec(row.Spec)
	q := v.queue(row.Queue)
	*r = running{job: row, spec: spec, queue: q, user: q.user(row.User), live: live, holds: r.holds[:0], past: pastOf(row, spec)}
	for a := range v.snapshot.AllocsOfAttempt(id, row.Attempt) {
		if node, ok := v.find(a.Node); ok && a.Phase != muster.AllocEnded {
			r.holds = append(r.holds, holding{node, a})
			r.gpus += gpusOf(a)
		}
	}
	if r.limit() == 0 {
		r.kin = v.kin(row.Name)
	}
	r.enter()
}

// gpusOf is how much of GPUs an allocation holds.
func gpusOf(a *muster.Allocation) int64 { return int64(a.MilliGPUs()) }

func (r *running) enter() {
	r.queue.held += r.gpus
	r.user.held += r.gpus
}

func (r *running) leave() {
	r.queue.held -= r.gpus
	r.user.held -= r.gpus
}

func (v *View) findRunning(id muster.JobID) (int, bool) {
	return slices.BinarySearchFunc(v.running, id, func(r *running, id muster.JobID) int { return cmp.Compare(r.job.ID, id) })
}

// readRunning fills the list for a fresh view.
func (v *View) readRunning(s *state.Snapshot) {
	var ids []muster.JobID
	for i := range v.nodes {
		for a := range s.AllocsOnNode(v.nodes[i].row.ID) {
			ids = append(ids, a.Job)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		row, is := s.Job(id)
		v.setRunning(id, row, is)
	}
}
