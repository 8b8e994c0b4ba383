package state

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster"
)

// Limits judges what jobs may take of their queues' limits: those of a queue and of all above it count what the queues below
// hold. It begins with what is held in the state, and follows what a plan takes and gives back. Not for concurrent use.
type Limits struct {
	t      *tables
	queues map[string]*held
}

// held is what the jobs of a queue, and of those below it, hold.
type held struct {
	spec    *muster.QueueSpec
	gpus    muster.MilliGPUs
	running int
	users   map[string]muster.MilliGPUs
}

// Limits begins with what is held now.
func (s *Snapshot) Limits() *Limits { return newLimits(&s.t) }

func newLimits(t *tables) *Limits { return &Limits{t: t, queues: map[string]*held{}} }

// held gives what a queue with limits holds; nil for one without.
func (l *Limits) held(name string) *held {
	h, known := l.queues[name]
	if known {
		return h
	}
	if q := l.t.queues.get(name); q != nil && q.Spec != nil && (q.Spec.MaxGPUs > 0 || q.Spec.UserGPUs > 0 || q.Spec.MaxRunning > 0) {
		h = l.count(q.Spec)
	}
	l.queues[name] = h
	return h
}

func (l *Limits) count(spec *muster.QueueSpec) *held {
	h := &held{spec: spec, users: map[string]muster.MilliGPUs{}}
	for q := range l.t.within(spec.Name) {
		h.running += q.Running
		for u := range l.t.usage.from(usageKey{queue: q.Name}) {
			if u.Queue != q.Name {
				break
			}
			h.gpus += muster.MilliGPUs(u.MilliGPUs)
			h.users[u.User] += muster.MilliGPUs(u.MilliGPUs)
		}
	}
	return h
}

// within yields a queue and those below it.
func (t *tables) within(name string) func(yield func(*muster.Queue) bool) {
	return func(yield func(*muster.Queue) bool) {
		for q := range t.queues.from(name) {
			switch {
			case q.Name == name || strings.HasPrefix(q.Name, name) && q.Name[len(name)] == '/':
				if !yield(q) {
					return
				}
			case !strings.HasPrefix(q.Name, name):
				return
			}
		}
	}
}

// LimitHit says which limit keeps a job from starting now.
type LimitHit struct {
	Queue string // whose limit it is: the job's queue or one above it
	Limit string // "max_gpus", "user_gpus" or "max_running"
	User  string // with user_gpus
	Held  muster.MilliGPUs
	Max   muster.MilliGPUs // as Held; of max_running, jobs × 1000
	Never bool             // the job alone asks for more
}

// String says it in numbers: "queue research/nlp is at 160 of 160 GPUs".
func (h *LimitHit) String() string {
	switch h.Limit {
	case "user_gpus":
		return fmt.Sprintf("%s is at %s of %s GPUs of a user in queue %s", h.User, h.Held, h.Max, h.Queue)
	case "max_running":
		return fmt.Sprintf("queue %s is at %s of %s running jobs", h.Queue, h.Held, h.Max)
	}
	return fmt.Sprintf("queue %s is at %s of %s GPUs", h.Queue, h.Held, h.Max)
}

// Hit says which limit a user's job of so many GPUs in a queue would exceed if it started now, or nil. What a queue holds beyond
// a limit that was lowered goes on; only new work waits.
func (l *Limits) Hit(queue, user string, gpus muster.MilliGPUs) *LimitHit {
	for name := queue; name != ""; name = muster.ParentQueue(name) {
		h := l.held(name)
		if h == nil {
			continue
		}
		if limit := muster.MilliGPUs(h.spec.MaxGPUs) * muster.WholeGPU; limit > 0 && gpus > 0 && h.gpus+gpus > limit {
			return &LimitHit{Queue: name, Limit: "max_gpus", Held: h.gpus, Max: limit, Never: gpus > limit}
		}
		if limit := muster.MilliGPUs(h.spec.UserGPUs) * muster.WholeGPU; limit > 0 && gpus > 0 && h.users[user]+gpus > limit {
			return &LimitHit{Queue: name, Limit: "user_gpus", User: user, Held: h.users[user], Max: limit, Never: gpus > limit}
		}
		if limit := h.spec.MaxRunning; limit > 0 && h.running >= limit {
			return &LimitHit{Queue: name, Limit: "max_running", Held: muster.MilliGPUs(h.running) * 1000, Max: muster.MilliGPUs(limit) * 1000}
		}
	}
	return nil
}

// Take notes that a user's job in a queue starts; Give that one ends.
func (l *Limits) Take(queue, user string, gpus muster.MilliGPUs) { l.add(queue, user, gpus, 1) }

// Give is the reverse of Take.
func (l *Limits) Give(queue, user string, gpus muster.MilliGPUs) { l.add(queue, user, -gpus, -1) }

func (l *Limits) add(queue, user string, gpus muster.MilliGPUs, running int) {
	for name := queue; name != ""; name = muster.ParentQueue(name) {
		if h := l.held(name); h != nil {
			h.gpus += gpus
			h.running += running
			h.users[user] += gpus
		}
	}
}

// neverStarts refuses what could never start within the limits of its queue and of those above it.
func (l *Limits) neverStarts(name string, spec *muster.JobSpec) *muster.Error {
	gpus := spec.MilliGPUs()
	for queue := spec.Queue; queue != ""; queue = muster.ParentQueue(queue) {
		q := l.t.queues.get(queue)
		if q == nil || q.Spec == nil {
			continue
		}
		limit, word := q.Spec.MaxGPUs, "max_gpus"
		if u := q.Spec.UserGPUs; u > 0 && (limit == 0 || u < limit) {
			limit, word = u, "user_gpus"
		}
		if limit > 0 && gpus > muster.MilliGPUs(limit)*muster.WholeGPU {
			err := muster.Errorf(muster.KindInfeasible, "job %q asks for %s GPUs in all, and queue %q has %s = %d", name, gpus, queue, word, limit).
				WithHint("Ask for less, or submit with --pend to wait until the limit is raised")
			err.Field = ".groups[0].task.resources.gpus"
			return err
		}
	}
	return nil
}
