package scheduler

import (
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// queue holds the pending jobs of a queue, in buckets, and what its jobs hold.
type queue struct {
	name    string
	users   map[string]*user
	byKey   map[bucketKey]*bucket
	buckets []*bucket // in no order
	pending int
	held    int64   // by its jobs that run
	branch  *branch // in the tree of the pass at work
}

// user is somebody's part of a queue.
type user struct {
	name  string
	queue *queue
	held  int64
	using amounts // in the pass at work
	share float64
}

// bucketKey is what jobs have in common that stand in line together: when one can't be placed, none of them can, and their
// places in line differ by their numbers only.
type bucketKey struct {
	user     *user
	priority int
	shape    muster.ShapeID
	limit    time.Duration
	kin      kinID        // whose run times tell its own
	own      muster.JobID // of a job with a past, or with a hold, which stands for itself
}

// bucket holds the pending jobs of a key.
type bucket struct {
	key   bucketKey
	shape *shape
	jobs  jobList
	past  past
	hold  *state.HoldRow
	at    int // position in queue.buckets
}

func (v *View) queue(name string) *queue {
	byName := func(q *queue, name string) int { return strings.Compare(q.name, name) }
	at, found := slices.BinarySearchFunc(v.queues, name, byName)
	if !found {
		v.queues = slices.Insert(v.queues, at, &queue{name: name, users: map[string]*user{}, byKey: map[bucketKey]*bucket{}})
	}
	return v.queues[at]
}

// queueNamed is the queue of a name that has, or had, jobs here.
func (v *View) queueNamed(name string) *queue {
	at, found := slices.BinarySearchFunc(v.queues, name, func(q *queue, name string) int { return strings.Compare(q.name, name) })
	if !found {
		return nil
	}
	return v.queues[at]
}

func (q *queue) user(name string) *user {
	u := q.users[name]
	if u == nil {
		u = &user{name: name, queue: q}
		q.users[name] = u
	}
	return u
}

// bucketKeyOf is where a pending job belongs, as s has it.
func (v *View) bucketKeyOf(s *state.Snapshot, j *muster.Job) bucketKey {
	key := bucketKey{user: v.queue(j.Queue).user(j.User), priority: j.Priority, shape: j.Shape}
	if spec := s.Spec(j.Spec); spec != nil {
		key.limit = spec.TimeLimit
	}
	if key.limit == 0 {
		key.kin = v.kin(j.Name)
	}
	if _, held := s.Hold(j.ID); held || j.Attempt > 0 {
		key.own = j.ID
	}
	return key
}

// addPending puts a job of the view's snapshot where it belongs; one whose shape the state does not know is left out.
func (v *View) addPending(j *muster.Job) {
	q := v.queue(j.Queue)
	key := v.bucketKeyOf(v.snapshot, j)
	b := q.byKey[key]
	if b == nil {
		s := v.shape(key.shape)
		if s == nil {
			return
		}
		s.buckets++
		b = &bucket{key: key, shape: s, at: len(q.buckets)}
		if key.own != 0 {
			b.past = pastOf(j, v.snapshot.Spec(j.Spec))
			b.hold, _ = v.snapshot.Hold(j.ID)
		}
		q.byKey[key] = b
		q.buckets = append(q.buckets, b)
	}
	before := b.jobs.len
	b.jobs.add(j.ID)
	q.pending += b.jobs.len - before
}

func (v *View) removePending(key bucketKey, job muster.JobID) {
	q := key.user.queue
	b := q.byKey[key]
	if b == nil {
		return
	}
	before := b.jobs.len
	b.jobs.remove(job)
	q.pending += b.jobs.len - before
	if b.jobs.len > 0 {
		return
	}
	delete(q.byKey, b.key)
	last := q.buckets[len(q.buckets)-1]
	q.buckets[b.at], last.at = last, b.at
	q.buckets = q.buckets[:len(q.buckets)-1]
	if b.shape.buckets--; b.shape.buckets == 0 {
		v.dropShape(b.shape)
	}
}

func pendingKey(j *muster.Job) state.PendingKey {
	return state.PendingKey{Queue: j.Queue, User: j.User, Priority: j.Priority, Shape: j.Shape, Job: j.ID}
}
