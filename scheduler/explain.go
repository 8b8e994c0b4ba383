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
	e.Position, e.Ahead = q.standing(job)
	e.AheadCount, e.Of = e.Position-1, q.pending
	s := v.shape(job.Shape)
	if s == nil {
		return e, true
	}
	p := v.begin(signals)
	defer p.rollback(0)
	v.learn(s)
	k, free := p.blocked(s)
	if free {
		e.Note = "there is room: it starts with the next pass"
	}
	a := account{v: v, s: s, q: question{r: &s.requests[k], ranks: 1, signals: &signals, v: v}}
	if a.q.r.within == "node" {
		a.q.ranks = a.q.r.count
	}
	a.survey()
	e.Reasons, e.Never = a.reasons(now), a.never()
	e.Headline = a.headline()
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

// account counts what a request finds on all nodes.
type account struct {
	v     *View
	s     *shape
	q     question
	lanes []*lane
	now   []tally // by lane
	ever  []tally // if nothing ran and every node were well
	found map[finding]*Reason
	order []finding
	most  int // ranks that one node could ever hold
}

type tally struct {
	ranks    int
	nodes    int            // that hold one rank at least: all ranks where they must share a node
	byDomain map[string]int // ranks, where the request is bound to a domain
}

type finding struct {
	rank   int // position in pipeline
	detail string
}

func (a *account) survey() {
	r := a.q.r
	a.lanes = []*lane{a.v.cpu}
	if r.gpus > 0 {
		a.lanes = a.s.models
	}
	a.now, a.ever = make([]tally, len(a.lanes)), make([]tally, len(a.lanes))
	a.found = map[finding]*Reason{}
	for i := range a.v.nodes {
		n := &a.v.nodes[i]
		f := a.q.verdict(n)
		if f != nil {
			a.note(f, n)
		}
		if f == nil || !f.never {
			domain, _ := n.row.Label(r.within)
			for k, l := range a.lanes {
				whole := r.capacity(n.whole(), n.chassis, n.row, l)
				a.most = max(a.most, whole)
				a.ever[k].add(whole, a.q.ranks, domain)
				if f == nil {
					a.now[k].add(r.capacity(n.room(), n.chassis, n.row, l), a.q.ranks, domain)
				}
			}
		}
	}
}

func (t *tally) add(ranks, atLeast int, domain string) {
	if ranks < atLeast {
		return
	}
	t.ranks += ranks
	t.nodes++
	if domain != "" {
		if t.byDomain == nil {
			t.byDomain = map[string]int{}
		}
		t.byDomain[domain] += ranks
	}
}

func (a *account) note(f *filter, n *node) {
	key := finding{slices.IndexFunc(pipeline, func(g filter) bool { return g.kind == f.kind && g.never == f.never }), f.detail(&a.q, n)}
	r := a.found[key]
	if r == nil {
		same := 0
		for _, other := range a.order {
			if other.rank == key.rank {
				same++
			}
		}
		if same >= maxDetails {
			key.detail = ""
		}
		if r = a.found[key]; r == nil {
			r = &Reason{Kind: f.kind, Never: f.never, Detail: key.detail}
			a.found[key] = r
			a.order = append(a.order, key)
		}
	}
	r.Count++
	if len(r.Nodes) < MaxReasonNodes {
		r.Nodes = append(r.Nodes, n.row.Name)
	}
}

// reasons lists what was found: what does not do now, then what can never do.
func (a *account) reasons(now muster.Time) []Reason {
	slices.SortStableFunc(a.order, func(x, y finding) int {
		nx, ny := pipeline[x.rank].never, pipeline[y.rank].never
		switch {
		case nx != ny && ny:
			return -1
		case nx != ny:
			return 1
		case x.rank != y.rank:
			return cmp.Compare(urgency(x.rank), urgency(y.rank))
		}
		return cmp.Compare(a.found[y].Count, a.found[x].Count)
	})
	var out []Reason
	for _, f := range a.order {
		r := *a.found[f]
		if r.Kind == "busy" {
			r.Detail = a.v.holders(r.Nodes, now)
		}
		out = append(out, r)
	}
	return append(a.ofGang(), out...)
}

// urgency puts what resources lack before the nodes' conditions, in each kind as pipeline has them.
func urgency(rank int) int {
	switch pipeline[rank].kind {
	case "lost", "absent", "suspect", "draining":
		return rank + len(pipeline)
	}
	return rank
}

// ofGang lists what keeps the ranks apart from nodes that would do for one of them each.
func (a *account) ofGang() []Reason {
	r := a.q.r
	var out []Reason
	best, all := 0, 0
	var words []string
	for k, l := range a.lanes {
		best, all = max(best, a.now[k].ranks), all+a.now[k].ranks
		if a.now[k].ranks > 0 {
			words = append(words, fmt.Sprintf("%d on %s", a.now[k].ranks, l.model))
		}
	}
	if best < r.count && all >= r.count && a.q.ranks == 1 {
		out = append(out, Reason{Kind: "model", Detail: "all ranks get one GPU model; room for " + strings.Join(words, ", ")})
	}
	if r.within != "" && r.within != "node" && best >= r.count {
		if value, ranks := a.largestDomain(a.now); ranks < r.count {
			_, ever := a.largestDomain(a.ever)
			out = append(out, Reason{Kind: "domain", Never: ever < r.count,
				Detail: fmt.Sprintf("all ranks go into one %s; the most is room for %d of %d, in %s", r.within, ranks, r.count, value)})
		}
	}
	return out
}

// largestDomain is the domain with room for most ranks, with any one model; the first by value.
func (a *account) largestDomain(of []tally) (string, int) {
	best, most := "", 0
	for _, d := range a.v.domainsOf(a.q.r.within) {
		for k := range of {
			if ranks := of[k].byDomain[d.value]; ranks > most {
				best, most = d.value, ranks
			}
		}
	}
	return best, most
}

// best is how many ranks the request finds room for, in one domain and with one model, and on how many nodes.
func (a *account) best(of []tally) (ranks, nodes int) {
	for k := range of {
		if of[k].ranks > ranks {
			ranks, nodes = of[k].ranks, of[k].nodes
		}
	}
	if r := a.q.r; r.within != "" && r.within != "node" {
		_, ranks = a.largestDomain(of)
	}
	return ranks, nodes
}

func (a *account) never() bool {
	ranks, _ := a.best(a.ever)
	return len(a.v.nodes) > 0 && ranks < a.q.r.count
}

// headline says what is needed, and how much of it there is now.
func (a *account) headline() string {
	r := a.q.r
	ranks, nodes := a.best(a.now)
	var need, have string
	switch {
	case r.count == 1 || r.within == "node":
		need = "1 node with " + a.q.amount(r.gpus*r.count)
		if r.count > 1 {
			need += fmt.Sprintf(" for %d ranks", r.count)
		}
		have = such(nodes)
	case a.most <= 1 && r.within == "":
		need = fmt.Sprintf("%d nodes with %s each", r.count, a.q.amount(r.gpus))
		have = such(nodes)
	default:
		need = fmt.Sprintf("room for %d ranks with %s each", r.count, a.q.amount(r.gpus))
		if r.within != "" {
			need += " in one " + r.within
		}
		have = "room for " + count(ranks, "rank")
		if ranks == 0 {
			have = "none"
		}
	}
	switch {
	case len(a.v.nodes) == 0:
		return "needs " + need + "; there are no nodes yet"
	case a.never() && r.count == 1:
		return "needs " + need + "; no node could ever run it"
	case a.never():
		return "needs " + need + "; the nodes could never hold it"
	}
	return "needs " + need + "; now " + have
}

func such(nodes int) string {
	if nodes == 0 {
		return "none"
	}
	return count(nodes, "such node")
}

// amount writes what a rank needs, with so many GPUs: "8 free H100 and 128GiB".
func (q *question) amount(gpus int) string {
	res := q.r.res
	if res.Exclusive {
		if gpus == 0 {
			return "nothing else on it"
		}
		return gpuWords(gpus, res) + " and nothing else on it"
	}
	var parts []string
	if gpus > 0 {
		parts = append(parts, gpuWords(gpus, res))
	}
	if q.r.cores > 0 {
		cores := q.r.cores * muster.MilliCores(q.ranks)
		if cores == 1000 {
			parts = append(parts, "1 core")
		} else {
			parts = append(parts, cores.String()+" cores")
		}
	}
	if q.r.memory > 0 {
		parts = append(parts, (q.r.memory * muster.Bytes(q.ranks)).Human())
	}
	if gpus == 0 {
		return strings.Join(parts, " and ") + " free"
	}
	if len(parts) == 3 {
		return parts[0] + ", " + parts[1] + " and " + parts[2]
	}
	return strings.Join(parts, " and ")
}

func gpuWords(gpus int, res *muster.Resources) string {
	words := fmt.Sprintf("%d free %s", gpus, strings.Join(res.Models, " or "))
	if len(res.Models) == 0 {
		words = fmt.Sprintf("%d free GPUs", gpus)
		if gpus == 1 {
			words = "1 free GPU"
		}
	}
	if res.MinMemory > 0 {
		words += " of " + res.MinMemory.Human()
	}
	return words
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
