package state

import (
	"fmt"

	"github.com/musterhpc/muster"
)

// maxRanks bounds a gang.
const maxRanks = 10_000

// maxVerdicts bounds how many shapes are remembered as feasible.
const maxVerdicts = 4096

// preparation is what check and apply of one Submit share.
type preparation struct {
	command uint64 // that it was made for
	specs   []preparedSpec
}

type preparedSpec struct {
	asked muster.SpecID // content hash of the spec as it was sent
	spec  *muster.JobSpec
	id    muster.SpecID // of spec, which has its queue's defaults
	key   [16]byte      // of the shape
	shape muster.Shape
}

// prepare fills in the queues' defaults and works out the content hashes of what is submitted, once for each command.
//
// The defaults are filled in here and not before the command is proposed: a retry then has the content that it had, whatever
// the queues say by then, and what is acknowledged of a queue holds for all that is submitted later, at any server.
func (s *State) prepare(c *Submit) {
	if s.prepared.command == s.w.command {
		return
	}
	s.prepared.command = s.w.command
	s.prepared.specs = s.prepared.specs[:0]
	for _, spec := range c.Specs {
		if spec == nil {
			spec = &muster.JobSpec{}
		}
		p := preparedSpec{spec: spec, asked: s.w.enc.specID(spec), shape: muster.ShapeOf(spec)}
		p.id = p.asked
		if q := s.t.queues.get(spec.Queue); q != nil {
			rules := q.Rules()
			if p.spec = rules.WithDefaults(spec); p.spec != spec {
				p.id = s.w.enc.specID(p.spec)
			}
			p.shape = muster.ShapeIn(p.spec, rules)
		}
		p.key = s.w.enc.shapeKey(&p.shape)
		s.prepared.specs = append(s.prepared.specs, p)
	}
}

func (c *Submit) check(s *State) *muster.Error {
	if len(c.Specs) == 0 {
		return muster.Errorf(muster.KindInvalid, "no job to submit")
	}
	if c.StartWithin < 0 {
		return muster.Errorf(muster.KindInvalid, "a job that is to start before it is submitted")
	}
	s.prepare(c)
	for i, spec := range c.Specs {
		err := s.checkSpec(spec)
		if err == nil {
			err = c.admitted(s, s.prepared.specs[i].spec)
		}
		if err != nil {
			err.Field = fmt.Sprintf("jobs[%d]%s", i, err.Field)
			return err
		}
	}
	if err := c.roomToWait(s); err != nil {
		return err
	}
	limits := newLimits(&s.t)
	for i := range c.Specs {
		if c.Pend {
			break
		}
		p := &s.prepared.specs[i]
		if err := limits.neverStarts(c.jobName(i), p.spec); err != nil {
			err.Field = fmt.Sprintf("jobs[%d]%s", i, err.Field)
			return err
		}
		if s.feasible[p.key] {
			continue
		}
		if err := s.t.infeasible(c.jobName(i), p.spec, &p.shape); err != nil {
			if q := s.t.queues.get(p.spec.Queue).Rules(); len(q.Constraints) > 0 {
				err.Hint += fmt.Sprintf(". Jobs in queue %q get only nodes where %s", q.Name, conditions(q.Constraints))
			}
			err.Field = fmt.Sprintf("jobs[%d]%s", i, err.Field)
			return err
		}
		if len(s.feasible) >= maxVerdicts {
			clear(s.feasible)
		}
		s.feasible[p.key] = true
	}
	return nil
}

// checkSpec looks at what the state itself depends on; the rest was validated before.
func (s *State) checkSpec(spec *muster.JobSpec) *muster.Error {
	if spec == nil || len(spec.Groups) == 0 {
		return muster.Errorf(muster.KindInvalid, "a job without a group")
	}
	if s.t.queues.get(spec.Queue) == nil {
		err := muster.Errorf(muster.KindInvalid, "queue %q does not exist", spec.Queue).WithHint("%s", s.t.queueMeant(spec.Queue))
		err.Field = ".queue"
		return err
	}
	ranks := 0
	for i := range spec.Groups {
		g := &spec.Groups[i]
		r := &g.Task.Resources
		what := ""
		ranks += min(g.Count, maxRanks+1)
		switch {
		case g.Count < 1:
			what = fmt.Sprintf("count %d: a group has at least one rank", g.Count)
		case ranks > maxRanks:
			what = fmt.Sprintf("more than %d ranks in a gang", maxRanks)
		case r.GPUs < 0 || r.MilliCores < 0 || r.Memory < 0 || r.MinMemory < 0:
			what = "resources below zero"
		case r.Share < 0 || r.Share >= muster.WholeGPU || r.Share > 0 && r.GPUs != 1:
			what = fmt.Sprintf("a share of %s of %d GPUs: it is a part of one", r.Share, r.GPUs)
		case g.Disconnect.StopAfter < 0 || g.Retry.Delay < 0 || g.Retry.MaxDelay < 0:
			what = "a duration below zero"
		}
		if what != "" {
			err := muster.Errorf(muster.KindInvalid, "job %q: %s", spec.Name, what)
			err.Field = fmt.Sprintf(".groups[%d]", i)
			return err
		}
	}
	return nil
}

func (c *Submit) jobName(i int) string {
	if c.Name != "" {
		return c.Name
	}
	return c.Specs[i].Name
}

func (c *Submit) apply(s *State) Result {
	ids := make([]muster.JobID, len(c.Specs))
	var startBy muster.Time
	if c.StartWithin > 0 {
		startBy = max(s.now().Add(c.StartWithin), 1)
	}
	for i, spec := range c.Specs {
		p := &s.prepared.specs[i]
		spec = p.spec
		id := s.t.cluster.NextJob
		s.t.cluster.NextJob++
		ids[i] = id
		j := s.t.jobs.insert(id, muster.Job{
			ID:        id,
			Spec:      s.internSpec(p.id, spec),
			Shape:     s.internShape(p.key, p.shape),
			Name:      c.jobName(i),
			User:      c.User,
			Queue:     spec.Queue,
			Priority:  spec.Priority,
			Phase:     muster.JobPending,
			Submitted: s.now(),
			StartBy:   startBy,
		}, &s.w)
		s.note(EventSubmitted, j, "")
		if c.Hold {
			s.hold(j, c.User)
		}
		s.touched = append(s.touched, touchedJob{id: id})
	}
	return Result{Jobs: ids}
}

func (s *State) internSpec(id muster.SpecID, spec *muster.JobSpec) muster.SpecID {
	if row, _ := s.t.specs.edit(id, &s.w); row != nil {
		row.Jobs++
	} else {
		s.t.specs.insert(id, SpecRow{ID: id, Spec: spec, Jobs: 1}, &s.w)
	}
	return id
}

func (s *State) releaseSpec(id muster.SpecID) {
	if row, _ := s.t.specs.edit(id, &s.w); row.Jobs > 1 {
		row.Jobs--
	} else {
		s.t.specs.remove(id, &s.w)
	}
}

func (s *State) internShape(key [16]byte, shape muster.Shape) muster.ShapeID {
	if id, ok := s.shapeOf[key]; ok {
		row, _ := s.t.shapes.edit(id, &s.w)
		row.Jobs++
		return id
	}
	id := s.t.cluster.NextShape
	s.t.cluster.NextShape++
	s.t.shapes.insert(id, ShapeRow{ID: id, Shape: &shape, Jobs: 1}, &s.w)
	s.shapeOf[key] = id
	return id
}

// releaseShape counts a job of the shape less. The last one takes the row along: nothing looks at the shape of ended jobs.
func (s *State) releaseShape(id muster.ShapeID) {
	row, _ := s.t.shapes.edit(id, &s.w)
	if row.Jobs > 1 {
		row.Jobs--
		return
	}
	key := s.w.enc.shapeKey(row.Shape)
	delete(s.shapeOf, key)
	delete(s.feasible, key)
	s.t.shapes.remove(id, &s.w)
}
