package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster"
)

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
	at := slices.IndexFunc(pipeline, func(g filter) bool { return g.kind == f.kind && g.never == f.never })
	key := finding{at, f.detail(&a.q, n)}
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
