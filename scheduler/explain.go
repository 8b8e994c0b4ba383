package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster"
)

// Explained says where a job stands and why it waits.
type Explained struct {
	Job        muster.JobID
	Position   int            // in its queue's order, from 1; 0 = not pending
	Of         int            // pending jobs of the queue
	Ahead      []muster.JobID // nearest first, at most MaxAhead
	AheadCount int
	Headline   string   // "needs 2 nodes with 8 free H100 each; now 1 such node"
	Never      bool     // no set of known nodes, however free, could hold it
	Reasons    []Reason // what does not do now, then what can never do
	Note       string   // what else there is to say

	// When it is expected to start: if what runs ends as jobs of its kind do, and if it needs all its time. 0 = not known.
	Earliest, Latest muster.Time
}

// Reason is one reason why nodes do not do.
type Reason struct {
	Kind   string   // "busy", "short", "draining", "wrong gpu", …: the kinds of pipeline, "model" and "domain"
	Never  bool     // not only now
	Count  int      // of nodes
	Nodes  []string // by number, at most MaxReasonNodes
	Detail string   // "6 of 8 free"
}

// Bounds of an explanation.
const (
	MaxAhead       = 5
	MaxReasonNodes = 16
	maxDetails     = 6 // different details of one kind; further ones are told together
	maxHolders     = 3 // jobs named as holding busy nodes
)

// Explain says where a job of the view's snapshot stands and why it waits; false: there is no such job. It looks at the nodes
// when asked, so it needs no pass before it and is as new as the view.
func (v *View) Explain(id muster.JobID, signals Signals, now muster.Time) (Explained, bool) {
	job, ok := v.snapshot.Job(id)
	if !ok {
		return Explained{}, false
	}
	e := Explained{Job: id}
	if !v.snapshot.IsPending(pendingKey(job)) {
		e.Note = notPending(job)
		return e, true
	}
	q := v.queue(job.Queue)
	g := v.open(signals, now)
	e.Position, e.Ahead = g.standing(q, job)
	e.AheadCount, e.Of = e.Position-1, q.pending
	s := v.shape(job.Shape)
	if s == nil {
		return e, true
	}
	p := g.pass
	defer p.rollback(0)
	v.learn(s)
	k, free := p.blocked(s)
	look := v.open(signals, now).look(job, s)
	e.Earliest, e.Latest, e.Note = look.earliest, look.latest, look.note(v, now, free)
	if since, could := v.couldSince[id]; could && s.wishes() {
		e.Note = fmt.Sprintf("there is room on several of what it would like one of (prefer = %q): it waits for one, until %s", s.preferred(),
			since.Add(s.patience).Time().Format(time.RFC3339))
	}
	a := account{v: v, s: s, q: question{r: &s.requests[k], ranks: 1, signals: &signals, v: v}}
	if a.q.r.within == "node" {
		a.q.ranks = a.q.r.count
	}
	a.survey()
	e.Reasons, e.Never = a.reasons(now), a.never()
	e.Headline = a.headline()
	if hit := g.limits.Hit(job.Queue, job.User, muster.MilliGPUs(s.gpuMilli)); hit != nil {
		if free {
			e.Note = "there is room, and a limit keeps it from starting"
		}
		e.Reasons = append([]Reason{{Kind: "quota", Never: hit.Never, Detail: hit.String()}}, e.Reasons...)
		e.Never = e.Never || hit.Never
	}
	if spec := v.snapshot.Spec(job.Spec); spec != nil && len(s.requests) > 1 && k < len(spec.Groups) {
		e.Headline = "group " + spec.Groups[k].Name + " " + e.Headline
	}
	return e, true
}

func notPending(job *muster.Job) string {
	switch {
	case job.Phase == muster.JobHeld && job.Reason != "":
		return "held: " + job.Reason
	case job.Phase == muster.JobPending && job.Backoff > 0:
		return "waits " + muster.FormatDuration(job.Backoff) + " after its last attempt before it is tried again"
	case job.Phase.Terminal() && job.Reason != "":
		return job.Phase.String() + ": " + job.Reason
	}
	return job.Phase.String()
}

// blocked is the position of the request that keeps the gang from starting, with the model that gets furthest; free: none.
func (p *pass) blocked(s *shape) (k int, free bool) {
	sc := scope{out: p.out}
	models := s.models
	if !s.gpus {
		models = []*lane{nil}
	}
	furthest := -1
	for _, model := range models {
		_, r, ok := p.try(s, model, &sc)
		if ok {
			return s.order[0], true
		}
		furthest = max(furthest, slices.IndexFunc(s.order, func(k int) bool { return &s.requests[k] == r }))
	}
	return s.order[max(furthest, 0)], false
}

// holders names the jobs on nodes, the soonest by its limit first: "train-3b (1031 of bob), at most 1h10m more".
func (v *View) holders(names []string, now muster.Time) string {
	type holder struct {
		job  *muster.Job
		left time.Duration // of its limit; < 0: none
	}
	seen := map[muster.JobID]bool{}
	var holders []holder
	for _, name := range names {
		n, ok := v.snapshot.NodeNamed(name)
		if !ok {
			continue
		}
		for alloc := range v.snapshot.AllocsOnNode(n.ID) {
			job, ok := v.snapshot.Job(alloc.Job)
			if !ok || seen[job.ID] || alloc.Slots == 0 {
				continue
			}
			seen[job.ID] = true
			h := holder{job, -1}
			if spec := v.snapshot.Spec(job.Spec); spec != nil && spec.TimeLimit > 0 && len(job.Attempts) > 0 {
				started := job.Attempts[len(job.Attempts)-1].Started
				if started == 0 {
					started = now
				}
				h.left = max(0, started.Add(spec.TimeLimit).Sub(now)).Round(time.Second)
			}
			holders = append(holders, h)
		}
	}
	slices.SortFunc(holders, func(a, b holder) int {
		if (a.left < 0) != (b.left < 0) {
			return cmp.Compare(b.left, a.left) // those without a limit last
		}
		return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.job.ID, b.job.ID))
	})
	var words []string
	for _, h := range holders[:min(len(holders), maxHolders)] {
		w := fmt.Sprintf("%s (%d of %s)", h.job.Name, h.job.ID, h.job.User)
		if h.left >= 0 {
			w += ", at most " + muster.FormatDuration(h.left) + " more"
		}
		words = append(words, w)
	}
	if more := len(holders) - maxHolders; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, "; ")
}

// near is a pending job seen from one that comes later.
type near struct{ place }

// standing is a pending job's place in its queue's order, from 1, and who is right before it, nearest first.
func (a *agenda) standing(q *queue, j *muster.Job) (position int, ahead []muster.JobID) {
	own := q.byKey[a.v.bucketKeyOf(a.v.snapshot, j)]
	if own == nil {
		return 0, nil
	}
	before, _ := own.jobs.below(j.ID, 0, nil)
	at := a.placeOf(own, j.ID, before)
	var all []near
	var jobs []muster.JobID
	count := 0
	for _, b := range q.buckets {
		p := a.placeOf(b, b.jobs.first(), 0)
		p.job = j.ID
		limit := j.ID
		switch {
		case at.before(p):
			continue
		case p.before(at):
			limit = ^muster.JobID(0)
		}
		var n int
		n, jobs = b.jobs.below(limit, MaxAhead, jobs[:0])
		count += n
		for _, id := range jobs {
			p.job = id
			all = append(all, near{p})
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
		switch {
		case b.before(a.place):
			return -1
		case a.before(b.place):
			return 1
		}
		return 0
	})
	return all[:min(len(all), MaxAhead)]
}
