package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// queue holds the pending jobs of a queue. Its order is priority, highest first, then the job's number. Fair share will put
// users between the two: a bucket's key gets the user, and next() the user's share.
type queue struct {
	name    string
	byKey   map[bucketKey]*bucket
	buckets []*bucket // in no order
	pending int
}

type bucketKey struct {
	priority int
	shape    muster.ShapeID
}

// bucket holds the pending jobs of equal priority and shape: when one can't be placed, none of them can.
type bucket struct {
	key   bucketKey
	shape *shape
	jobs  jobList
	at    int // position in queue.buckets
}

func (v *View) queue(name string) *queue {
	byName := func(q *queue, name string) int { return strings.Compare(q.name, name) }
	at, found := slices.BinarySearchFunc(v.queues, name, byName)
	if !found {
		v.queues = slices.Insert(v.queues, at, &queue{name: name, byKey: map[bucketKey]*bucket{}})
	}
	return v.queues[at]
}

// addPending puts a job where it belongs; one whose shape the state does not know is left out.
func (v *View) addPending(k state.PendingKey) {
	q := v.queue(k.Queue)
	key := bucketKey{k.Priority, k.Shape}
	b := q.byKey[key]
	if b == nil {
		s := v.shape(k.Shape)
		if s == nil {
			return
		}
		s.buckets++
		b = &bucket{key: key, shape: s, at: len(q.buckets)}
		q.byKey[key] = b
		q.buckets = append(q.buckets, b)
	}
	before := b.jobs.len
	b.jobs.add(k.Job)
	q.pending += b.jobs.len - before
}

func (v *View) removePending(k state.PendingKey) {
	q := v.queue(k.Queue)
	b := q.byKey[bucketKey{k.Priority, k.Shape}]
	if b == nil {
		return
	}
	before := b.jobs.len
	b.jobs.remove(k.Job)
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

// head is the first untried job of a bucket in a pass.
type head struct {
	job    muster.JobID
	bucket *bucket
}

func (h head) before(o head) bool {
	if h.bucket.key.priority != o.bucket.key.priority {
		return h.bucket.key.priority > o.bucket.key.priority
	}
	return h.job < o.job
}

// line is the order of a queue's jobs in a pass: a heap of its buckets' heads.
type line []head

func newLine(q *queue, space line) line {
	l := space[:0]
	for _, b := range q.buckets {
		l = append(l, head{b.jobs.first(), b})
	}
	for i := len(l)/2 - 1; i >= 0; i-- {
		l.sift(i)
	}
	return l
}

func (l line) sift(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(l); child++ {
			if l[child].before(l[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		l[i], l[least] = l[least], l[i]
		i = least
	}
}

// next moves past the first job: to the next one of its bucket, or, when its shape cannot be placed, past the whole bucket.
func (l *line) next(bucketDone bool) {
	if !bucketDone {
		if job, ok := (*l)[0].bucket.jobs.after((*l)[0].job); ok {
			(*l)[0].job = job
			l.sift(0)
			return
		}
	}
	last := len(*l) - 1
	(*l)[0] = (*l)[last]
	*l = (*l)[:last]
	l.sift(0)
}

// near is a pending job seen from one that comes later.
type near struct {
	priority int
	job      muster.JobID
}

// standing is a pending job's place in its queue's order, from 1, and who is right before it, nearest first.
func (q *queue) standing(j *muster.Job) (position int, ahead []muster.JobID) {
	var all []near
	var jobs []muster.JobID
	count := 0
	for _, b := range q.buckets {
		if b.key.priority < j.Priority {
			continue
		}
		limit := j.ID
		if b.key.priority > j.Priority {
			limit = ^muster.JobID(0)
		}
		var n int
		n, jobs = b.jobs.below(limit, MaxAhead, jobs[:0])
		count += n
		for _, id := range jobs {
			all = append(all, near{b.key.priority, id})
		}
		if len(all) > 64*MaxAhead {
			all = nearest(all)
		}
	}
	for _, n := range nearest(all) {
		ahead = append(ahead, n.job)
	}
	return count + 1, ahead
}

// nearest keeps those that come last in the queue's order, the last first.
func nearest(all []near) []near {
	slices.SortFunc(all, func(a, b near) int {
		if c := cmp.Compare(a.priority, b.priority); c != 0 {
			return c
		}
		return cmp.Compare(b.job, a.job)
	})
	return all[:min(len(all), MaxAhead)]
}
