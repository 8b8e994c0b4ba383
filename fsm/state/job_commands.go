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

func (c *Cancel) check(s *State) *muster.Error {
	if c.Mode == muster.StopNone || c.Mode > muster.StopKill {
		return muster.Errorf(muster.KindInvalid, "cancel with the unknown stop mode %d", c.Mode)
	}
	return s.checkJobs(c.Jobs)
}

func (c *Cancel) apply(s *State) Result {
	reason := "cancelled"
	if c.User != "" {
		reason = "cancelled by " + c.User
	}
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
	}
	return result
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
