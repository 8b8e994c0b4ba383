package scheduler

import (
	"time"

	"github.com/musterhpc/muster"
)

// tier puts jobs before others whatever their order is.
type tier int8

const (
	tierHeld   tier = iota // places are held for it already
	tierWide               // a wide gang that would starve
	tierOwed               // of a queue that is owed its quota
	tierCommon             // all else
)

// place is where a job stands in line: what is compared, in this order.
type place struct {
	tier     tier
	priority int     // highest first
	fresh    int8    // 0: it must start again after a fault; 1: all else
	value    float64 // by the policy's order; of a wide gang, since when it has waited
	job      muster.JobID
}

func (a place) before(b place) bool {
	switch {
	case a.tier != b.tier:
		return a.tier < b.tier
	case a.tier == tierWide && a.value != b.value:
		return a.value < b.value
	case a.tier <= tierWide:
		return a.job < b.job
	case a.priority != b.priority:
		return a.priority > b.priority
	case a.fresh != b.fresh:
		return a.fresh < b.fresh
	case a.value != b.value:
		return a.value < b.value
	}
	return a.job < b.job
}

// head is the first untried job of a bucket in a pass.
type head struct {
	place
	bucket *bucket
	count  int // how many of the bucket were before it
}

// line is the order of a queue's jobs in a pass: a heap of its buckets' heads.
type line struct {
	queue *queue
	heads []head
}

func (a *agenda) newLine(q *queue, space []head) line {
	l := line{q, space[:0]}
	for _, b := range q.buckets {
		l.heads = append(l.heads, head{a.placeOf(b, b.jobs.first(), 0), b, 0})
	}
	for i := len(l.heads)/2 - 1; i >= 0; i-- {
		l.sift(i)
	}
	return l
}

func (l *line) sift(i int) {
	h := l.heads
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].before(h[least].place) {
				least = child
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// next moves past the first job: to the next one of its bucket, or, when none of them can be placed, past the whole bucket.
func (a *agenda) next(l *line, bucketDone bool) {
	first := &l.heads[0]
	if !bucketDone {
		if job, ok := first.bucket.jobs.after(first.job); ok {
			first.count++
			first.place = a.placeOf(first.bucket, job, first.count)
			l.sift(0)
			return
		}
	}
	last := len(l.heads) - 1
	l.heads[0] = l.heads[last]
	l.heads = l.heads[:last]
	l.sift(0)
}

// settle brings the first job of a line to the top: shares only grow in a pass, so a head whose user's has grown sinks.
func (a *agenda) settle(l *line) {
	for a.byShare && len(l.heads) > 0 {
		first := &l.heads[0]
		if first.tier <= tierWide || first.value == first.bucket.key.user.share {
			return
		}
		first.value = first.bucket.key.user.share
		l.sift(0)
	}
}

// turn finds the line whose first job is next, -1 when all have been tried.
func (a *agenda) turn() int {
	turn := -1
	for i := range a.lines {
		l := &a.lines[i]
		if a.settle(l); len(l.heads) == 0 {
			continue
		}
		if turn < 0 || a.ahead(l, &a.lines[turn]) {
			turn = i
		}
	}
	return turn
}

// ahead says whether the first job of x comes before that of y, which is of another queue.
func (a *agenda) ahead(x, y *line) bool {
	hx, hy := &x.heads[0], &y.heads[0]
	px, py := hx.place, hy.place
	if px.tier == tierCommon && a.quotas && x.queue.branch.guaranteed(hx.bucket.shape.gpuMilli) {
		px.tier = tierOwed
	}
	if py.tier == tierCommon && a.quotas && y.queue.branch.guaranteed(hy.bucket.shape.gpuMilli) {
		py.tier = tierOwed
	}
	if px.tier != py.tier || px.tier <= tierWide {
		return px.before(py)
	}
	switch {
	case a.policy.Order == muster.OrderShortest:
		px.fresh, py.fresh = 0, 0
	case a.policy.FairShare:
		if c := x.queue.branch.compare(y.queue.branch); c != 0 {
			return c < 0
		}
		return px.job < py.job
	}
	return px.before(py)
}

// placeOf is where a job of a bucket stands; count of the bucket's jobs are before it.
func (a *agenda) placeOf(b *bucket, job muster.JobID, count int) place {
	p := place{tier: tierCommon, priority: b.key.priority, fresh: 1, job: job}
	if b.past.repair {
		p.fresh = 0
	}
	if b.hold != nil {
		p.tier = tierHeld
		return p
	}
	if b.shape.wide(&a.policy) {
		if since, aged := a.starves(b, job); aged {
			p.tier, p.value = tierWide, float64(since)
			return p
		}
	}
	if count < a.owed[b] {
		p.tier = tierOwed
	}
	switch {
	case a.policy.Order == muster.OrderShortest:
		p.priority = 0
		p.value = a.value(b.key.user.name, b.shape.gpuMilli, b.key.limit, b.past.done, false)
	case a.byShare:
		p.value = b.key.user.share
	}
	return p
}

// wide says whether the policy counts the shape's jobs among those that would starve.
func (s *shape) wide(p *muster.Policy) bool {
	return p.WideAfter > 0 && s.gpuMilli > int64(p.WideGPUs)*1000
}

// starves says since when a wide job has waited, all its waiting reckoned as one, and whether that is longer than the policy
// bears. When it is not, the pass notes when it will be.
func (a *agenda) starves(b *bucket, job muster.JobID) (since muster.Time, aged bool) {
	since = b.past.since.Add(-b.past.waited)
	if b.key.own == 0 {
		row, ok := a.v.snapshot.Job(job)
		if !ok {
			return 0, false
		}
		since = row.Submitted
	}
	if at := since.Add(a.policy.WideAfter); at > a.now {
		a.wakeAt(at)
		return since, false
	}
	return since, true
}

// weightOf is how much a job's time counts that needs so many GPUs; without any, an eighth of one.
func weightOf(gpuMilli int64) float64 { return max(0.125, float64(gpuMilli)/1000) }

// wakeAt notes when a further pass may decide something, though nothing changes until then.
func (a *agenda) wakeAt(at muster.Time) {
	if at > a.now && (a.plan.Wake == 0 || at < a.plan.Wake) {
		a.plan.Wake = at
	}
}

// limit is the time limit of a running job; 0 = none.
func (r *running) limit() time.Duration {
	if r.spec == nil {
		return 0
	}
	return r.spec.TimeLimit
}
