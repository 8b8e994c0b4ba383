package scheduler

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/fsm/state"
)

// maxClaimed bounds how many jobs are looked at for what a queue would run of its own.
const maxClaimed = 4096

// claims works out, for each queue with a quota, what a cluster as large as that would run now of its jobs: those that come first
// in the policy's order, while their GPUs add up to at most the quota. While the queue is owed something these jobs go before all
// others. Only where the order is by remaining time: else what a quota covers goes first at any time.
func (a *agenda) claims() {
	a.entitled = map[*running]bool{}
	if !a.policy.FairShare || a.quotas {
		return
	}
	for _, g := range a.tree.list {
		if g.quota == 0 {
			continue
		}
		claim := a.claim(g)
		if g.claim != claim {
			a.plan.Claims = append(a.plan.Claims, state.QueueClaim{Queue: g.name, GPUs: claim})
		}
	}
}

func (a *agenda) claim(g *branch) int {
	type job struct {
		place
		r *running
	}
	var runs []job
	lines := a.lines[:0]
	for _, q := range a.v.queues {
		if !slices.Contains(q.branch.path, g) {
			continue
		}
		if q.pending > 0 {
			lines = append(lines, a.newLine(q, nil))
		}
	}
	for _, r := range a.v.running {
		if slices.Contains(r.queue.branch.path, g) && !r.stopping() && r.gpus > 0 {
			runs = append(runs, job{place{tier: tierCommon, value: a.valueOf(r), job: r.job.ID}, r})
		}
	}
	slices.SortFunc(runs, func(x, y job) int { return cmp.Or(cmp.Compare(x.value, y.value), cmp.Compare(x.job, y.job)) })
	owed := g.owed > 0
	left := g.quota
	taken := func(gpus int64) bool {
		if gpus > left {
			return false
		}
		left -= gpus
		return true
	}
	for range maxClaimed {
		var first *line
		for i := range lines {
			if len(lines[i].heads) > 0 && (first == nil || lines[i].heads[0].place.value < first.heads[0].place.value) {
				first = &lines[i]
			}
		}
		switch {
		case left == 0 || first == nil && len(runs) == 0:
			return int((g.quota - left) / 1000)
		case first == nil || len(runs) > 0 && runs[0].value <= first.heads[0].value:
			if taken(runs[0].r.gpus) && owed {
				a.entitled[runs[0].r] = true
			}
			runs = runs[1:]
			continue
		}
		h := first.heads[0]
		if h.bucket.shape.gpuMilli == 0 || !taken(h.bucket.shape.gpuMilli) {
			a.next(first, true)
			continue
		}
		if owed {
			a.owed[h.bucket]++
		}
		a.next(first, false)
	}
	return int((g.quota - left) / 1000)
}
