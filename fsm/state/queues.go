package state

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster"
)

func (c *ApplyQueues) check(s *State) *muster.Error {
	if err := muster.CheckQueues(c.Queues, &c.Policy); err != nil {
		return err
	}
	for q := range s.t.queues.all() {
		if q.Name != muster.DefaultQueue && !c.keeps(q.Name) {
			if n := s.t.liveIn(q.Name); n > 0 {
				err := muster.Errorf(muster.KindConflict, "queue %q cannot be removed: %s in it", q.Name, jobsHave(n)).
					WithHint("Keep it in the file until they have ended, or cancel them: muster ps -A -q %s", q.Name)
				return err
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
	for _, name := range gone {
		if name == muster.DefaultQueue {
			s.queue(name).Spec = nil
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
		s.queue(spec.Name).Spec = spec
	}
	policy := c.Policy
	s.t.cluster.Policy = &policy
	return Result{}
}
