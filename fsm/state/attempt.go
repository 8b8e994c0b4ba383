package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhpc/muster"
)

// The loop guard: so many attempts in a row that the cluster ended, each shorter than this, hold the job.
const (
	loopGuardAttempts = 5
	loopGuardLength   = 10 * time.Minute
)

// repairDelay stands before the third attempt when the cluster ended two in a row, doubled before each further one. The loop
// guard bounds it.
const repairDelay = time.Second

// attempt is the newest of a placed job.
func attempt(j *muster.Job) *muster.Attempt { return &j.Attempts[len(j.Attempts)-1] }

// advance brings an allocation forward to what its worker reports, short of its end.
func (s *State) advance(id muster.AllocID, phase muster.AllocPhase, running muster.Time) {
	a := s.alloc(id)
	j := s.job(a.Job)
	pass(attempt(j), a.Phase, phase)
	if a.Phase < muster.AllocRunning && phase == muster.AllocRunning {
		a.Running = s.orNow(running)
	}
	a.Phase = phase
	s.proceed(j)
}

func (s *State) orNow(t muster.Time) muster.Time {
	if t > 0 {
		return t
	}
	return s.now()
}

// pass counts the milestones that an allocation passes.
func pass(at *muster.Attempt, from, to muster.AllocPhase) {
	if from < muster.AllocReady && to >= muster.AllocReady {
		at.Unready--
	}
	if from < muster.AllocRunning && to >= muster.AllocRunning {
		at.Waiting--
	}
	if from < muster.AllocEnded && to == muster.AllocEnded {
		at.Live--
	}
}

// proceed opens the barrier when the last rank is ready, and calls the job running when the last one runs. An attempt that
// is ending does neither.
func (s *State) proceed(j *muster.Job) {
	if j.Phase != muster.JobPreparing {
		return
	}
	at := attempt(j)
	if at.Unready == 0 && at.Started == 0 {
		at.Started = s.now()
		for _, id := range s.t.allocsOf(j.ID, at.Number) {
			if a := s.t.allocs.get(id); !a.Go && a.Phase != muster.AllocEnded {
				s.alloc(id).Go = true
			}
		}
	}
	if at.Waiting == 0 {
		j.Phase = muster.JobRunning
		if j.Started == 0 {
			j.Started = s.now()
		}
		s.note(EventStarted, j, "")
	}
}

// ending is how an allocation ended.
type ending struct {
	class    muster.Class
	exitCode int
	signal   int
	message  string
	running  muster.Time // the worker's clock; 0 = not known
	ended    muster.Time
	peak     muster.Bytes
}

// end ends a live allocation, gives back what it held, and draws the consequences for its attempt and job.
func (s *State) end(id muster.AllocID, e ending) {
	a := s.alloc(id)
	j := s.job(a.Job)
	at := attempt(j)
	class := endClass(a, e.class)
	if e.running > 0 && a.Running == 0 {
		a.Running = e.running
	}
	pass(at, a.Phase, muster.AllocEnded)
	a.Phase, a.Class, a.Ended = muster.AllocEnded, class, s.orNow(e.ended)
	a.ExitCode, a.Signal, a.Message, a.Peak = e.exitCode, e.signal, e.message, e.peak
	s.giveBack(a, j)

	if class != muster.ClassNone && j.Phase != muster.JobStopping {
		s.blame(j, a)
	}
	s.release(j, a)
	s.proceed(j)
	if at.Live == 0 {
		s.settle(j)
	}
}

// release lets go of the ranks that only hold their place (start = "first"), once the first of their group has ended. They end
// as it did: without blame when it succeeded.
func (s *State) release(j *muster.Job, first *muster.Allocation) {
	if first.Rank != 0 || s.t.specs.get(j.Spec).Spec.Groups[first.Group].Task.Start != muster.StartFirst {
		return
	}
	for _, id := range s.t.allocsOf(j.ID, j.Attempt) {
		a := s.t.allocs.get(id)
		if a.Group != first.Group || a.Phase == muster.AllocEnded || a.Stop.Mode >= muster.StopTerm {
			continue
		}
		a = s.alloc(id)
		if a.Stop.Mode == muster.StopNone {
			a.Stop = muster.Stop{Reason: "rank 0 has ended", At: s.now()}
		}
		a.Stop.Mode = muster.StopTerm
	}
}

// endClass is the class of an allocation that ended. One that was asked to stop ended because of that, whatever its exit
// code, unless its worker knows better.
func endClass(a *muster.Allocation, reported muster.Class) muster.Class {
	if a.Stop.Mode != muster.StopNone && a.Stop.Class == muster.ClassNone {
		return muster.ClassNone // released: nothing that ends it undoes what the first rank did
	}
	switch reported {
	case muster.ClassOOM, muster.ClassTimeout, muster.ClassNode, muster.ClassGPU, muster.ClassPrepare:
		return reported
	}
	if a.Stop.Mode != muster.StopNone {
		return a.Stop.Class
	}
	switch reported {
	case muster.ClassExit:
		return muster.ClassExit
	case muster.ClassNone:
		if !a.Go {
			return muster.ClassPrepare // nothing can have succeeded behind a closed barrier
		}
		return muster.ClassNone
	}
	return muster.ClassNode // says that it was stopped, and nobody asked
}

// giveBack frees what an allocation held.
func (s *State) giveBack(a *muster.Allocation, j *muster.Job) {
	n := s.node(a.Node)
	if a.Share > 0 {
		n.ReturnShare(a.Slots.Slots()[0], a.Share)
	} else {
		n.FreeSlots |= a.Slots & n.UsableSlots()
	}
	n.FreeMilliCores += a.MilliCores
	n.FreeMemory += a.Memory
	n.Allocs--
	if a.Slots != 0 {
		s.owe(j.Queue)
		s.queue(j.Queue).Hold(a, -1)
	}
	s.charge(j, a, -1)
	s.t.nodeAllocs.drop(nodeAllocKey{a.Node, a.ID})
}

// blame names the first rank of an attempt that failed, and stops the others.
func (s *State) blame(j *muster.Job, a *muster.Allocation) {
	at := attempt(j)
	at.Class, at.ExitCode, at.Culprit = a.Class, exitCode(a), a.ID
	at.Reason = s.describe(j, a)
	j.Phase = muster.JobStopping
	if at.Live > 0 {
		s.note(EventStopping, j, at.Reason)
	}
	// At a time limit all ranks are saving themselves already: the first to be done does not cut the others short.
	mode := muster.StopTerm
	if a.Class == muster.ClassTimeout {
		mode = muster.StopSave
	}
	s.stopAllocs(j, muster.Stop{Mode: mode, Class: muster.ClassCollateral, Reason: at.Reason, At: s.now()})
}

// exitCode is the job's exit code when this rank is the first that failed.
func exitCode(a *muster.Allocation) int {
	switch {
	case a.Class == muster.ClassOOM:
		return 137
	case a.Signal > 0:
		return 128 + a.Signal
	}
	return a.ExitCode
}

// describe says in one sentence what happened to a rank.
func (s *State) describe(j *muster.Job, a *muster.Allocation) string {
	where := s.t.nodes.get(a.Node).Name
	rank := fmt.Sprintf("rank %d on %s", a.Rank, where)
	if spec := s.t.specs.get(j.Spec).Spec; len(spec.Groups) > 1 {
		rank = fmt.Sprintf("rank %d of %s on %s", a.Rank, spec.Groups[a.Group].Name, where)
	}
	var what string
	switch {
	case a.Class == muster.ClassOOM:
		what = "ran out of memory"
	case a.Class == muster.ClassTimeout:
		if a.Message != "" {
			return rank + ": " + a.Message
		}
		what = "reached its time limit"
	case a.Class == muster.ClassPrepare:
		what = "could not be prepared"
	case a.Class == muster.ClassNode:
		what = "was lost"
	case a.Class == muster.ClassGPU:
		what = "lost a GPU"
	case a.Signal > 0:
		what = fmt.Sprintf("was ended by signal %d", a.Signal)
	default:
		what = fmt.Sprintf("ended with exit code %d", a.ExitCode)
	}
	if a.Message != "" {
		return fmt.Sprintf("%s %s: %s", rank, what, a.Message)
	}
	return rank + " " + what
}

// stop asks a placed job to end. Who is stopping already is asked again only for a cancel, or with less time than before.
func (s *State) stop(j *muster.Job, stop muster.Stop) {
	at := attempt(j)
	cancel := stop.Class == muster.ClassCancelled
	if j.Phase == muster.JobStopping && !cancel {
		if j.Stop.Class == muster.ClassCancelled || !at.Culprit.IsZero() || stop.Mode <= j.Stop.Mode {
			return
		}
	}
	stop.Mode = max(stop.Mode, j.Stop.Mode)
	j.Stop, j.Phase = stop, muster.JobStopping
	if at.Culprit.IsZero() {
		at.Class, at.Reason = stop.Class, stop.Reason
	}
	s.note(EventStopping, j, stop.Reason)
	s.stopAllocs(j, stop)
}

// stopAllocs asks the live allocations of a job's attempt to end. A stop that leaves less time than asked stays as it is.
func (s *State) stopAllocs(j *muster.Job, stop muster.Stop) {
	for _, id := range s.t.allocsOf(j.ID, j.Attempt) {
		a := s.t.allocs.get(id)
		if a.Phase == muster.AllocEnded || a.Stop.Mode >= stop.Mode && a.Stop.Class == stop.Class {
			continue
		}
		mode := max(a.Stop.Mode, stop.Mode)
		a = s.alloc(id)
		a.Stop = stop
		a.Stop.Mode = mode
	}
}

// settle closes an attempt whose last allocation has ended, and decides what becomes of the job.
func (s *State) settle(j *muster.Job) {
	at := attempt(j)
	at.Ended = s.now()
	if j.Stop.Class == muster.ClassCancelled {
		s.finish(j, muster.JobCancelled, muster.ClassCancelled, at.ExitCode, j.Stop.Reason)
		return
	}
	if at.Class.CountsForLoopGuard() && at.Ended.Sub(at.Placed) < loopGuardLength {
		j.ClusterFailures++
	} else {
		j.ClusterFailures = 0
	}
	switch {
	case at.Class == muster.ClassNone:
		s.finish(j, muster.JobSucceeded, muster.ClassNone, 0, "")
	case at.Class.OfCluster():
		s.repair(j, at)
	case s.retries(j, at):
		j.Failures++
		retry := &s.culpritGroup(j, at).Retry
		s.requeue(j, doubled(retry.Delay, j.Failures, retry.MaxDelay))
	default:
		s.finish(j, muster.JobFailed, at.Class, at.ExitCode, at.Reason)
	}
}

// repair lets a job that the cluster failed start again at its old place, or holds it when that leads nowhere.
func (s *State) repair(j *muster.Job, at *muster.Attempt) {
	if j.ClusterFailures < loopGuardAttempts {
		var delay time.Duration
		if j.ClusterFailures > 1 {
			delay = doubled(repairDelay, j.ClusterFailures-1, 0)
		}
		s.requeue(j, delay)
		return
	}
	s.requeue(j, 0)
	j.Phase, j.Class = muster.JobHeld, at.Class
	j.Reason = fmt.Sprintf("node, GPU or preparation failed five times in a row, at last: %s; muster release %d lets it go on", at.Reason, j.ID)
	s.note(EventHeld, j, j.Reason)
}

// retries says whether the job's retry block gives it another attempt.
func (s *State) retries(j *muster.Job, at *muster.Attempt) bool {
	retry := &s.culpritGroup(j, at).Retry
	if int64(j.Failures) >= int64(retry.Attempts) || !slices.Contains(retry.On, at.Class) {
		return false
	}
	return at.Class != muster.ClassExit || len(retry.ExitCodes) == 0 || slices.Contains(retry.ExitCodes, at.ExitCode)
}

func (s *State) culpritGroup(j *muster.Job, at *muster.Attempt) *muster.Group {
	spec := s.t.specs.get(j.Spec).Spec
	if a := s.t.allocs.get(at.Culprit); a != nil {
		return &spec.Groups[a.Group]
	}
	return &spec.Groups[0]
}

// doubled is delay·2^(n-1), at most limit where there is one.
func doubled(delay time.Duration, n uint32, limit time.Duration) time.Duration {
	for ; n > 1 && delay > 0 && delay < 1<<61; n-- {
		if limit > 0 && delay >= limit {
			break
		}
		delay *= 2
	}
	if limit > 0 {
		delay = min(delay, limit)
	}
	return delay
}

func (s *State) requeue(j *muster.Job, backoff time.Duration) {
	j.Phase, j.Stop, j.Backoff = muster.JobPending, muster.Stop{}, backoff
	s.noteAttempt(j, attempt(j))
}

// finish ends a job for ever.
func (s *State) finish(j *muster.Job, phase muster.JobPhase, class muster.Class, code int, reason string) {
	j.Phase, j.Class, j.ExitCode, j.Reason = phase, class, code, reason
	j.Finished, j.Backoff = s.now(), 0
	s.learn(j)
	kind := EventSucceeded
	switch phase {
	case muster.JobFailed:
		kind = EventFailed
	case muster.JobCancelled:
		kind = EventCancelled
	}
	s.note(kind, j, reason)
}
