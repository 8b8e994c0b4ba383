package exec

import (
	"errors"

	"github.com/musterhpc/muster"
)

// What agents ask for.

func (s *supervisor) prepare(t Task) error {
	if err := t.check(); err != nil {
		return err
	}
	if s.exits.has(t.Alloc) {
		s.mu.Lock()
		_, known := s.ranks[t.Alloc]
		s.mu.Unlock()
		if known {
			return nil
		}
		return muster.Errorf(muster.KindConflict, "allocation %s has ended already", t.Alloc)
	}
	r := &rank{task: t, plan: NewPlan(&t), status: Status{Alloc: t.Alloc, Phase: muster.AllocPreparing}, wake: make(chan struct{}, 1)}
	r.started = true // until it is ready nobody may start it
	s.mu.Lock()
	if _, known := s.ranks[t.Alloc]; known || s.quitting {
		quitting := s.quitting
		s.mu.Unlock()
		if quitting {
			return errGone
		}
		return nil
	}
	s.ranks[t.Alloc] = r
	s.busy()
	s.mu.Unlock()

	err := s.prepareFiles(&r.task)
	var group *cgroup
	if err == nil && s.groups != nil {
		if group, err = s.groups.makeTask(&r.task); err != nil {
			err = &PrepareError{Message: "cgroup on " + s.config.Node + ": " + err.Error()}
			group.remove(t.MilliCores)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.ranks, t.Alloc)
		s.busy()
		return err
	}
	r.group, r.started, r.status.Phase = group, false, muster.AllocReady
	s.publish(r)
	if r.plan.stop.Mode != muster.StopNone {
		s.endUnstarted(r)
	}
	select {
	case s.look <- struct{}{}:
	default:
	}
	return nil
}

func (s *supervisor) start(id muster.AllocID) error {
	s.mu.Lock()
	r := s.ranks[id]
	switch {
	case r == nil:
		s.mu.Unlock()
		return muster.Errorf(muster.KindNotFound, "allocation %s was not prepared here", id)
	case r.status.Phase == muster.AllocPreparing:
		s.mu.Unlock()
		return muster.Errorf(muster.KindConflict, "allocation %s is being prepared", id)
	case r.started:
		s.mu.Unlock()
		return nil
	}
	if ahead := r.plan; ahead.Due(Now()) == ActKill {
		r.plan = ahead // its lease has ended
		s.endUnstarted(r)
		s.mu.Unlock()
		return nil
	}
	r.started = true
	s.work.Add(1)
	s.mu.Unlock()
	forked := make(chan struct{})
	go s.run(r, forked)
	<-forked
	return nil
}

func (s *supervisor) stop(id muster.AllocID, stop muster.Stop) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.ranks[id]
	if r == nil {
		return muster.Errorf(muster.KindNotFound, "allocation %s is not here", id)
	}
	if !r.live() {
		return nil
	}
	r.plan.Ask(stop, Now())
	switch {
	case r.started:
		r.poke()
	case r.plan.stop.Mode != muster.StopNone:
		s.endUnstarted(r)
	}
	return nil
}

func (s *supervisor) extend(leases []leaseEnd) []muster.AllocID {
	now := Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var alive []muster.AllocID
	for _, l := range leases {
		if r := s.ranks[l.Alloc]; r != nil && r.live() && r.plan.Extend(l.End, now) {
			alive = append(alive, l.Alloc)
		}
	}
	return alive
}

func (s *supervisor) list() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Status, 0, len(s.ranks))
	for _, r := range s.ranks {
		list = append(list, r.status)
	}
	sortStatuses(list)
	return list
}

func (s *supervisor) forget(ids []muster.AllocID) error {
	var errs []error
	for _, id := range ids {
		s.mu.Lock()
		r := s.ranks[id]
		if r != nil && r.live() && r.started {
			s.mu.Unlock()
			errs = append(errs, muster.Errorf(muster.KindConflict, "allocation %s has not ended", id))
			continue
		}
		delete(s.ranks, id)
		s.busy()
		s.mu.Unlock()
		if r != nil && r.group != nil {
			r.group.remove(r.task.MilliCores) // it was never started
		}
		err := s.exits.forget(id)
		if s.exits.old[id] { // of a supervisor before this one
			err = errors.Join(err, ForgetExits(s.config.StateDir, []muster.AllocID{id}))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// mayQuit lets the first request to quit through, while no task lives.
func (s *supervisor) mayQuit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.living(); n > 0 {
		return muster.Errorf(muster.KindConflict, "%d tasks have not ended", n)
	}
	if s.quitting {
		return errGone
	}
	s.quitting = true
	return nil
}
