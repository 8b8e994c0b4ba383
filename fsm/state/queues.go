package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster"
)

func (c *ApplyQueues) check(s *State) *muster.Error { return s.t.takes(c) }

// Takes says why the state as it is would refuse a tree of queues, or nil.
func (s *Snapshot) Takes(c *ApplyQueues) *muster.Error { return s.t.takes(c) }

func (t *tables) takes(c *ApplyQueues) *muster.Error {
	if err := muster.CheckQueues(c.Queues, &c.Policy); err != nil {
		return err
	}
	for q := range t.queues.all() {
		if q.Name != muster.DefaultQueue && !c.keeps(q.Name) {
			if n := t.liveIn(q.Name); n > 0 {
				return muster.Errorf(muster.KindConflict, "queue %q cannot be removed: %s in it", q.Name, jobsHave(n)).
					WithHint("Keep it in the file until they have ended, or cancel them: muster ps -A -q %s", q.Name)
			}
		}
	}
	return nil
}

func jobsHave(n int) string {
	if n == 1 {
		return "1 job has not ended"
	}
	return fmt.Sprintf("%d jobs have not ended", n)
}

// keeps says whether the new tree has a queue.
func (c *ApplyQueues) keeps(name string) bool { return c.find(name) != nil }

func (c *ApplyQueues) find(name string) *muster.QueueSpec {
	i, ok := slices.BinarySearchFunc(c.Queues, name, muster.QueueSpec.CompareName)
	if !ok {
		return nil
	}
	return &c.Queues[i]
}

// liveIn counts the jobs of a queue that have not ended, whatever they wait for. It looks at all jobs: only who takes queues
// away asks.
func (t *tables) liveIn(queue string) int {
	n := 0
	for j := range t.jobs.all() {
		if j.Queue == queue && !j.Phase.Terminal() {
			n++
		}
	}
	return n
}

func (c *ApplyQueues) apply(s *State) Result {
	var gone []string
	for q := range s.t.queues.all() {
		if !c.keeps(q.Name) {
			gone = append(gone, q.Name)
		}
	}
	var moved []string // queues whose constraints have changed
	for _, name := range gone {
		if name == muster.DefaultQueue {
			q := s.queue(name)
			if len(q.Rules().Constraints) > 0 {
				moved = append(moved, name)
			}
			q.Spec = nil
			continue
		}
		s.t.queues.remove(name, &s.w)
		s.changed.Queues = append(s.changed.Queues, name)
	}
	for i := range c.Queues {
		spec := &c.Queues[i]
		if s.t.queues.get(spec.Name) == nil {
			s.t.queues.insert(spec.Name, muster.Queue{Name: spec.Name}, &s.w)
			s.changed.Queues = append(s.changed.Queues, spec.Name)
		}
		q := s.queue(spec.Name)
		if !slices.Equal(q.Rules().Constraints, spec.Constraints) {
			moved = append(moved, spec.Name)
		}
		q.Spec = spec
	}
	for _, name := range moved {
		s.reshape(name)
	}
	policy := c.Policy
	s.t.cluster.Policy = &policy
	return Result{}
}

// admitted says why a job's queue does not take it.
func (c *Submit) admitted(s *State, spec *muster.JobSpec) *muster.Error {
	q := s.t.queues.get(spec.Queue).Rules()
	if !q.Allows(c.User, c.Groups) {
		err := muster.Errorf(muster.KindDenied, "%s may not submit to queue %q", c.User, q.Name).
			WithHint("It is for %s", strings.Join(q.Allow, ", "))
		err.Field = ".queue"
		return err
	}
	if err := q.CheckCaps(spec); err != nil {
		err.Field = "." + err.Field
		return err
	}
	return nil
}

// roomToWait says that a queue, or one above it, has as many jobs waiting as it may.
func (c *Submit) roomToWait(s *State) *muster.Error {
	waits := map[string]int{} // in queues with a limit; these jobs included
	for i, spec := range c.Specs {
		for name := spec.Queue; name != ""; name = muster.ParentQueue(name) {
			limit := s.t.queues.get(name).Rules().MaxPending
			if limit == 0 {
				continue
			}
			n, counted := waits[name]
			if !counted {
				n = s.t.pendingWithin(name)
			}
			if waits[name] = n + 1; n+1 > limit {
				waiting := s.t.pendingWithin(name)
				err := muster.Errorf(muster.KindConflict, "queue %q has %d jobs waiting, and takes %d at most (max_pending)", name, waiting, limit).
					WithHint("Submit again when some have started")
				err.Field = fmt.Sprintf("jobs[%d].queue", i)
				return err
			}
		}
	}
	return nil
}

func (t *tables) pendingWithin(queue string) int {
	n := 0
	for q := range t.within(queue) {
		n += q.Pending
	}
	return n
}

// queueMeant guesses which queue somebody meant who named one that does not exist.
func (t *tables) queueMeant(name string) string {
	var near []string
	for q := range t.queues.all() {
		if strings.EqualFold(q.Name, name) || strings.HasSuffix(q.Name, "/"+name) || strings.HasSuffix(name, "/"+q.Name) {
			near = append(near, q.Name)
		}
	}
	if len(near) > 0 {
		return fmt.Sprintf("Did you mean %q?", near[0])
	}
	if t.queues.len() == 1 {
		return fmt.Sprintf("There is one, %q; an administrator makes others with  muster queue apply FILE", muster.DefaultQueue)
	}
	return "muster queue ls shows those that do"
}

// conditions writes constraints: `label.pool = "nlp" and node.gpus >= "8"`.
func conditions(list []muster.Constraint) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = fmt.Sprintf("%s %s", c.Attribute, c.Operator)
		if c.Operator != muster.OpExists {
			words[i] += fmt.Sprintf(" %q", c.Value)
		}
	}
	return strings.Join(words, " and ")
}

// reshape gives the jobs of a queue the shape that its constraints, which have changed, now give them.
func (s *State) reshape(queue string) {
	rules := s.t.queues.get(queue).Rules()
	var jobs []muster.JobID
	for j := range s.t.jobs.all() {
		if j.Queue == queue && !j.Phase.Terminal() {
			jobs = append(jobs, j.ID)
		}
	}
	for _, id := range jobs {
		j := s.job(id)
		shape := muster.ShapeIn(s.t.specs.get(j.Spec).Spec, rules)
		old := j.Shape
		j.Shape = s.internShape(s.w.enc.shapeKey(&shape), shape)
		s.releaseShape(old)
	}
}
