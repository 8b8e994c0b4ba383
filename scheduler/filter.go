package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster"
)

// question asks whether one node would do for a rank of a request: for all its ranks where they must share a node.
type question struct {
	r       *request
	ranks   int // 1, or all
	signals *Signals
	v       *View
}

// filter is one reason why a node does not do, and its words. never: not only now.
type filter struct {
	kind   string
	never  bool
	fails  func(q *question, n *node) bool
	detail func(q *question, n *node) string
}

// pipeline is what placement looks at, in the order in which it is told: a node is counted under the first that fails. What
// can never do comes before what does not do now. It says the same as enroll, eligible and capacity, which are quicker and
// cannot explain themselves; a property test holds them together.
var pipeline = []filter{
	{"constraint", true, breaksRule, ruleDetail},
	{"domain", true, outsideDomains, func(q *question, _ *node) string { return "without label " + q.r.within }},
	{"wrong gpu", true, lacksModel, modelDetail},
	{"small gpu", true, smallGPUs, smallDetail},
	{"too few gpus", true, func(q *question, n *node) bool {
		return q.gpus() > 0 && q.slots(n, muster.SlotRange(len(n.row.GPUs))) < q.gpus()
	},
		func(q *question, n *node) string {
			return fmt.Sprintf("%d of %d", q.slots(n, muster.SlotRange(len(n.row.GPUs))), q.gpus())
		}},
	{"cores", true, func(q *question, n *node) bool { return q.cores(n) > n.row.MilliCores },
		func(q *question, n *node) string {
			return fmt.Sprintf("%s cores in all, needs %s", n.row.MilliCores, q.cores(n))
		}},
	{"memory", true, func(q *question, n *node) bool { return q.memory(n) > n.row.Memory },
		func(q *question, n *node) string {
			return fmt.Sprintf("%s in all, needs %s", n.row.Memory.Human(), q.memory(n).Human())
		}},
	{"exclusive", true, func(q *question, _ *node) bool { return q.r.res.Exclusive && q.ranks > 1 },
		func(q *question, _ *node) string { return "one rank takes the whole node" }},
	{"lost", false, func(_ *question, n *node) bool { return n.row.Lost },
		func(_ *question, n *node) string { return n.row.Reason }},
	{"absent", false, func(q *question, n *node) bool { return n.row.Epoch != q.v.epoch },
		func(*question, *node) string { return "has not reported since the cluster was restored" }},
	{"suspect", false, isSuspect, func(q *question, n *node) string { return q.signals.Suspect[n.row.ID] }},
	{"draining", false, func(_ *question, n *node) bool { return n.row.Drain.On }, drainDetail},
	{"in use", false, func(q *question, n *node) bool { return q.r.res.Exclusive && n.allocs > 0 },
		func(_ *question, n *node) string {
			return fmt.Sprintf("%s there, needs the whole node", count(n.allocs, "rank"))
		}},
	{"sick gpu", false, func(q *question, n *node) bool { return q.gpus() > 0 && q.slots(n, n.usable) < q.gpus() }, sickDetail},
	{"busy", false, func(q *question, n *node) bool {
		return q.gpus() > 0 && q.slots(n, n.free) == 0 && (q.r.share == 0 || q.fits(n) == 0)
	},
		func(*question, *node) string { return "" }}, // who holds them is told once, for all nodes: holders
	{"short", false, func(q *question, n *node) bool { return q.gpus() > 0 && q.fits(n) < q.ranks },
		func(q *question, n *node) string {
			if q.r.share > 0 {
				return fmt.Sprintf("%d of %d shares of %s fit", q.fits(n), q.ranks, q.r.res.Share)
			}
			return fmt.Sprintf("%d of %d free", q.slots(n, n.free), q.gpus())
		}},
	{"cores", false, func(q *question, n *node) bool { return q.cores(n) > n.cores },
		func(q *question, n *node) string { return fmt.Sprintf("%s cores free, needs %s", n.cores, q.cores(n)) }},
	{"memory", false, func(q *question, n *node) bool { return q.memory(n) > n.memory },
		func(q *question, n *node) string {
			return fmt.Sprintf("%s free, needs %s", n.memory.Human(), q.memory(n).Human())
		}},
}

// verdict is the first filter that fails, nil when the node does.
func (q *question) verdict(n *node) *filter {
	for i := range pipeline {
		if pipeline[i].fails(q, n) {
			return &pipeline[i]
		}
	}
	return nil
}

// gpus is how many GPUs of a node the ranks need at the least.
func (q *question) gpus() int {
	if q.r.share > 0 {
		each := 1000 / q.r.share
		return (q.ranks + each - 1) / each
	}
	return q.r.gpus * q.ranks
}

// fits is how many of the ranks, if they want GPUs, find their GPUs on a node now, of the model that has most.
func (q *question) fits(n *node) int {
	most := 0
	for _, share := range n.chassis.lanes {
		fit := share.slots & q.r.fit[n.chassis.id]
		ranks := 0
		if q.r.share == 0 {
			ranks = (n.free & fit).Count() / q.r.gpus
		} else {
			ranks = (n.free & fit).Count() * (1000 / q.r.share)
			for _, s := range n.shared {
				if fit.Has(s.Slot) && n.usable.Has(s.Slot) {
					ranks += max(0, int(muster.WholeGPU-s.Held)) / q.r.share
				}
			}
		}
		most = max(most, ranks)
	}
	return most
}

func (q *question) cores(n *node) muster.MilliCores {
	cores, _ := n.row.Share(q.r.res)
	return cores * muster.MilliCores(q.ranks)
}

func (q *question) memory(n *node) muster.Bytes {
	_, memory := n.row.Share(q.r.res)
	return memory * muster.Bytes(q.ranks)
}

// slots is how many of the given slots fit, of the model that has most.
func (q *question) slots(n *node, among muster.SlotSet) int {
	most := 0
	for _, share := range n.chassis.lanes {
		most = max(most, (among & share.slots & q.r.fit[n.chassis.id]).Count())
	}
	return most
}

func breaksRule(q *question, n *node) bool { return q.r.rules != nil && !q.r.rules.allHold(n.row) }

func ruleDetail(q *question, n *node) string {
	for i := range q.r.rules.list {
		c := &q.r.rules.list[i]
		if q.r.rules.tests[i](n.row) {
			continue
		}
		want := strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Attribute, c.Operator, c.Value))
		if value, ok := n.row.Attribute(c.Attribute); ok {
			return fmt.Sprintf("%s, not %s", value, want)
		}
		return "without it: " + want
	}
	return ""
}

func outsideDomains(q *question, n *node) bool {
	if q.r.within == "" || q.r.within == "node" {
		return false
	}
	_, ok := n.row.Label(q.r.within)
	return !ok
}

// ofModel says whether a device is of a wanted model, whatever its memory.
func (q *question) ofModel(gpu *muster.GPU) bool {
	anySize := *q.r.res
	anySize.MinMemory = 0
	return anySize.FitsGPU(gpu)
}

func lacksModel(q *question, n *node) bool {
	if q.r.gpus == 0 {
		return false
	}
	for i := range n.chassis.parts {
		if q.ofModel(&n.chassis.parts[i].gpu) {
			return false
		}
	}
	return true
}

func modelDetail(_ *question, n *node) string {
	if len(n.chassis.lanes) == 0 {
		return "no GPUs"
	}
	models := make([]string, len(n.chassis.lanes))
	for i, share := range n.chassis.lanes {
		models[i] = share.lane.model
	}
	slices.Sort(models)
	return strings.Join(models, ", ")
}

func smallGPUs(q *question, n *node) bool { return q.r.gpus > 0 && q.r.fit[n.chassis.id] == 0 }

func smallDetail(q *question, n *node) string {
	var largest muster.Bytes
	for i := range n.chassis.parts {
		if gpu := &n.chassis.parts[i].gpu; q.ofModel(gpu) {
			largest = max(largest, gpu.Memory)
		}
	}
	return fmt.Sprintf("%s, needs %s", largest.Human(), q.r.res.MinMemory.Human())
}

func isSuspect(q *question, n *node) bool {
	_, ok := q.signals.Suspect[n.row.ID]
	return ok
}

func drainDetail(_ *question, n *node) string {
	d := &n.row.Drain
	var parts []string
	if d.By != "" {
		parts = append(parts, "by "+d.By)
	}
	if d.Reason != "" {
		parts = append(parts, fmt.Sprintf("%q", d.Reason))
	}
	return strings.Join(parts, ", ")
}

func sickDetail(q *question, n *node) string {
	sick := n.row.GPUs
	usable := q.slots(n, n.usable)
	for slot := range sick {
		if !n.usable.Has(slot) && q.r.fit[n.chassis.id].Has(slot) {
			why := ""
			if sick[slot].Reason != "" {
				why = ": " + sick[slot].Reason
			}
			return fmt.Sprintf("%d of %d well, GPU %d %s%s", usable, q.gpus(), slot, sick[slot].Health, why)
		}
	}
	return fmt.Sprintf("%d of %d well", usable, q.gpus())
}

// count writes a number and a noun: "1 rank", "4 ranks".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
