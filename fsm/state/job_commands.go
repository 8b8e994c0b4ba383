package state

import (
	"fmt"

	"github.com/musterhpc/muster"
)

func (s *State) checkJobs(ids []muster.JobID) *muster.Error {
	for _, id := range ids {
		if s.t.jobs.get(id) == nil {
			return muster.Errorf(muster.KindNotFound, "no job %d", id)
		}
	}
	return nil
}

// by says who did something, where that is known.
func by(what, user string) string {
	if user == "" {
		return what
	}
	return what + " by " + user
}

func (c *Cancel) check(s *State) *muster.Error {
	if c.Mode == muster.StopNone || c.Mode > muster.StopKill {
		return muster.Errorf(muster.KindInvalid, "cancel with the unknown stop mode %d", c.Mode)
	}
	return s.checkJobs(c.Jobs)
}

func (c *Cancel) apply(s *State) Result {
	reason := by("cancelled", c.User)
	var result Result
	for _, id := range c.Jobs {
		j := s.t.jobs.get(id)
		switch {
		case j.Phase.Terminal():
			result.Notes = append(result.Notes, fmt.Sprintf("%d had already ended: %s", id, j.Phase))
		case !j.Phase.Placed():
			s.finish(s.job(id), muster.JobCancelled, muster.ClassCancelled, 0, reason)
		case j.Stop.Class == muster.ClassCancelled && c.Mode <= j.Stop.Mode:
			result.Notes = append(result.Notes, fmt.Sprintf("%d is being cancelled already", id))
		default:
			s.stop(s.job(id), muster.Stop{Mode: c.Mode, Class: muster.ClassCancelled, Reason: reason, At: s.now()})
		}
	}
	return result
}

func (c *Release) check(s *State) *muster.Error { return s.checkJobs(c.Jobs) }

func (c *Release) apply(s *State) Result {
	var result Result
	for _, id := range c.Jobs {
		if phase := s.t.jobs.get(id).Phase; phase != muster.JobHeld {
			result.Notes = append(result.Notes, fmt.Sprintf("%d is not held: %s", id, phase))
			continue
		}
		j := s.job(id)
		j.Phase, j.ClusterFailures, j.Class, j.Reason = muster.JobPending, 0, muster.ClassNone, ""
		s.note(EventReleased, j, by("released", c.User))
	}
	return result
}

func (c *Hold) check(s *State) *muster.Error {
	if err := s.checkJobs(c.Jobs); err != nil {
		return err
	}
	for _, id := range c.Jobs {
		switch j := s.t.jobs.get(id); {
		case j.Phase.Terminal():
			return muster.Errorf(muster.KindConflict, "%d has ended: %s", id, j.Phase)
		case j.Phase.Placed():
			return muster.Errorf(muster.KindConflict, "%d is %s: only what waits can be held", id, j.Phase).
				WithHint("To stop it: muster cancel %d, or muster requeue %d", id, id)
		}
	}
	return nil
}

func (c *Hold) apply(s *State) Result {
	var result Result
	for _, id := range c.Jobs {
		if s.t.jobs.get(id).Phase == muster.JobHeld {
			result.Notes = append(result.Notes, fmt.Sprintf("%d is held already", id))
			continue
		}
		s.hold(s.job(id), c.User)
	}
	return result
}

// hold keeps a job that waits from starting. What is left of the delay of a retry is not remembered: a person decides when
// the job goes on.
func (s *State) hold(j *muster.Job, user string) {
	j.Phase, j.Backoff, j.Class = muster.JobHeld, 0, muster.ClassNone
	j.Reason = fmt.Sprintf("%s; muster release %d lets it go on", by("held", user), j.ID)
	s.note(EventHeld, j, j.Reason)
}

func (c *SetPriority) check(s *State) *muster.Error {
	if c.Priority < 0 || c.Priority > muster.MaxPriority {
		return muster.Errorf(muster.KindInvalid, "priority %d is not a number from 0 to %d", c.Priority, muster.MaxPriority)
	}
	if err := s.checkJobs(c.Jobs); err != nil {
		return err
	}
	for _, id := range c.Jobs {
		j := s.t.jobs.get(id)
		if j.Phase.Terminal() {
			return muster.Errorf(muster.KindConflict, "%d has ended: %s", id, j.Phase)
		}
		if err := s.t.queues.get(j.Queue).Rules().CheckPriority(c.Priority); err != nil {
			return err
		}
	}
	return nil
}

func (c *SetPriority) apply(s *State) Result {
	var result Result
	for _, id := range c.Jobs {
		if s.t.jobs.get(id).Priority == c.Priority {
			result.Notes = append(result.Notes, fmt.Sprintf("%d has priority %d already", id, c.Priority))
			continue
		}
		j := s.job(id)
		s.note(EventPriority, j, by(fmt.Sprintf("priority %d, was %d: set", c.Priority, j.Priority), c.User))
		j.Priority = c.Priority
	}
	return result
}

func (c *Requeue) check(s *State) *muster.Error {
	if err := s.checkJobs(c.Jobs); err != nil {
		return err
	}
	for _, id := range c.Jobs {
		switch j := s.t.jobs.get(id); {
		case j.Phase.Terminal():
			return muster.Errorf(muster.KindConflict, "%d has ended: %s", id, j.Phase).WithHint("A new job of the same spec: muster rerun %d", id)
		case j.Phase == muster.JobHeld:
			return muster.Errorf(muster.KindConflict, "%d is held: %s", id, j.Reason)
		}
	}
	return nil
}

func (c *Requeue) apply(s *State) Result {
	reason := by("requeued", c.User)
	var result Result
	for _, id := range c.Jobs {
		switch j := s.t.jobs.get(id); j.Phase {
		case muster.JobPending:
			result.Notes = append(result.Notes, fmt.Sprintf("%d waits already", id))
		case muster.JobStopping:
			result.Notes = append(result.Notes, fmt.Sprintf("%d is stopping already: %s", id, attempt(j).Reason))
		default:
			s.stop(s.job(id), muster.Stop{Mode: muster.StopSave, Class: muster.ClassPreempted, Reason: reason, At: s.now()})
		}
	}
	return result
}

func (c *StartDue) decidedIn() uint64 { return c.Term }

func (c *StartDue) check(*State) *muster.Error { return nil }

func (c *StartDue) apply(s *State) Result {
	for _, id := range c.Jobs {
		j := s.t.jobs.get(id)
		if j == nil || !startsBy(j) || j.StartBy > s.now() {
			continue
		}
		s.finish(s.job(id), muster.JobCancelled, muster.ClassCancelled, muster.CodeNotStarted,
			"it was to start within "+muster.FormatDuration(j.StartBy.Sub(j.Submitted)))
	}
	return Result{}
}

func (c *Wake) decidedIn() uint64 { return c.Term }

func (c *Wake) check(*State) *muster.Error { return nil }

func (c *Wake) apply(s *State) Result {
	for _, id := range c.Jobs {
		if j := s.t.jobs.get(id); j != nil && j.Phase == muster.JobPending && j.Backoff > 0 {
			s.job(id).Backoff = 0
		}
	}
	return Result{}
}

func (c *Purge) decidedIn() uint64 { return c.Term }

func (c *Purge) check(s *State) *muster.Error {
	if len(c.Jobs) > PurgeBatch {
		return muster.Errorf(muster.KindInvalid, "%d jobs to forget in one command, more than %d", len(c.Jobs), PurgeBatch)
	}
	for _, id := range c.Jobs {
		if j := s.t.jobs.get(id); j != nil && !j.Phase.Terminal() {
			return muster.Errorf(muster.KindConflict, "job %d cannot be forgotten: it is %s", id, j.Phase)
		}
	}
	return nil
}

func (c *Purge) apply(s *State) Result {
	for _, id := range c.Jobs {
		j := s.job(id)
		if j == nil {
			continue
		}
		for number := range j.Attempt {
			for _, alloc := range s.t.allocsOf(id, number+1) {
				s.t.allocs.remove(alloc, &s.w)
				s.t.jobAllocs.drop(jobAllocKey{id, number + 1, alloc})
			}
		}
		s.releaseSpec(j.Spec)
		s.t.jobs.remove(id, &s.w)
	}
	s.forget(PurgeBatch)
	return Result{}
}

func (c *InitCluster) check(s *State) *muster.Error {
	switch {
	case c.ClusterID == "":
		return muster.Errorf(muster.KindInvalid, "a cluster without an id")
	case s.t.cluster.ID != "":
		return muster.Errorf(muster.KindConflict, "the cluster has the id %s already", s.t.cluster.ID)
	}
	return nil
}

func (c *InitCluster) apply(s *State) Result {
	s.t.cluster.ID = c.ClusterID
	return Result{}
}
