package state

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/musterhpc/muster"
)

// infeasible says why no node, or not all nodes together, could ever hold a gang, or nil. It looks at all nodes known,
// whatever their condition, as if nothing ran on them; without any, everything may come yet.
func (t *tables) infeasible(name string, spec *muster.JobSpec, shape *muster.Shape) *muster.Error {
	nodes := slices.Collect(t.present())
	if len(nodes) == 0 {
		return nil
	}
	demands := make([]demand, len(shape.Groups))
	gpus := false
	for i := range shape.Groups {
		demands[i] = newDemand(&shape.Groups[i])
		gpus = gpus || demands[i].g.Resources.GPUs > 0
	}
	models := []string{""}
	if found := gpuModels(nodes); gpus && len(found) > 0 {
		models = found
	}
	fitsSomewhere := make([]bool, len(demands))
	for _, model := range models {
		all := true
		for i := range demands {
			fits := demands[i].fits(nodes, model)
			fitsSomewhere[i] = fitsSomewhere[i] || fits
			all = all && fits
		}
		if all {
			return nil
		}
	}
	i := slices.Index(fitsSomewhere, false)
	who := fmt.Sprintf("job %q", name)
	if len(demands) > 1 && i >= 0 {
		who = fmt.Sprintf("job %q, group %q", name, spec.Groups[i].Name)
	}
	var why, field string
	if i < 0 {
		why = "no GPU model fits all its groups, and a gang has one model"
	} else {
		why, field = demands[i].explain(nodes, models)
		field = fmt.Sprintf(".groups[%d]%s", i, field)
	}
	err := muster.Errorf(muster.KindInfeasible, "%s: %s", who, why).
		WithHint("Ask for less, or submit with --pend to wait for such nodes")
	err.Field = field
	return err
}

func gpuModels(nodes []*muster.Node) []string {
	var models []string
	for _, n := range nodes {
		for slot := range n.GPUs {
			if model := n.GPUs[slot].Model; !slices.Contains(models, model) {
				models = append(models, model)
			}
		}
	}
	slices.Sort(models)
	return models
}

// demand is a group of a shape with its constraints prepared.
type demand struct {
	g     *muster.ShapeGroup
	rules []func(*muster.Node) bool
}

func newDemand(g *muster.ShapeGroup) demand {
	d := demand{g: g}
	for i := range g.Constraints {
		d.rules = append(d.rules, g.Constraints[i].Matcher())
	}
	return d
}

// admits says whether the constraints hold on a node.
func (d *demand) admits(n *muster.Node) bool {
	return !slices.ContainsFunc(d.rules, func(holds func(*muster.Node) bool) bool { return !holds(n) })
}

// domain gives the name of the domain of a node that the group may not leave; false where the node is in none.
func (d *demand) domain(n *muster.Node) (string, bool) {
	switch d.g.Within {
	case "":
		return "", true
	case "node":
		return n.Name, true
	}
	return n.Label(d.g.Within)
}

// holds is how many ranks a node could hold if nothing ran there, with GPUs of one model.
func (d *demand) holds(n *muster.Node, model string) int {
	if !d.admits(n) {
		return 0
	}
	r := &d.g.Resources
	ranks := math.MaxInt32
	if r.GPUs > 0 {
		ranks = fittingGPUs(n, func(g *muster.GPU) bool { return g.Model == model && r.FitsGPU(g) }) / r.GPUs
		if r.Share > 0 {
			ranks *= int(muster.WholeGPU / r.Share)
		}
	}
	cores, memory := n.Share(r)
	if cores > 0 {
		ranks = int(min(muster.MilliCores(ranks), n.MilliCores/cores))
	}
	if memory > 0 {
		ranks = int(min(muster.Bytes(ranks), n.Memory/memory))
	}
	if r.Exclusive {
		ranks = min(ranks, 1)
	}
	return ranks
}

func fittingGPUs(n *muster.Node, fits func(*muster.GPU) bool) int {
	count := 0
	for slot := range n.GPUs {
		if fits(&n.GPUs[slot]) {
			count++
		}
	}
	return count
}

// roomiest gives the domain that could hold most ranks, and how many; "" with ranks 0 when no node is in a domain.
func (d *demand) roomiest(nodes []*muster.Node, model string) (domain string, ranks int) {
	type share struct {
		domain string
		ranks  int
	}
	var shares []share
	for _, n := range nodes {
		if domain, ok := d.domain(n); ok {
			shares = append(shares, share{domain, d.holds(n, model)})
		}
	}
	slices.SortStableFunc(shares, func(a, b share) int { return strings.Compare(a.domain, b.domain) })
	for i := 0; i < len(shares); {
		sum, first := 0, shares[i].domain
		for ; i < len(shares) && shares[i].domain == first; i++ {
			sum += shares[i].ranks
		}
		if sum > ranks || domain == "" {
			domain, ranks = first, sum
		}
	}
	return domain, ranks
}

func (d *demand) fits(nodes []*muster.Node, model string) bool {
	_, ranks := d.roomiest(nodes, model)
	return ranks >= d.g.Count
}

// explain names what no node has, and the node that comes nearest. field is the path in the group.
func (d *demand) explain(nodes []*muster.Node, models []string) (why, field string) {
	r := &d.g.Resources
	admitted := slices.DeleteFunc(slices.Clone(nodes), func(n *muster.Node) bool { return !d.admits(n) })
	if len(admitted) == 0 {
		return d.explainConstraints(nodes), ".constraints"
	}
	if r.GPUs > 0 {
		if why, field := explainGPUs(r, admitted); why != "" {
			return why, field
		}
	}
	// What follows is about nodes with GPUs enough.
	able := slices.DeleteFunc(slices.Clone(admitted), func(n *muster.Node) bool {
		return r.GPUs > 0 && !slices.ContainsFunc(models, func(model string) bool { return modelGPUs(r, n, model) >= r.GPUs })
	})
	which := ""
	if r.GPUs > 0 {
		which = fmt.Sprintf(" with %s", wanted(r))
	}
	best := largest(able, func(n *muster.Node) int64 { return int64(n.MilliCores) })
	if cores, _ := best.Share(r); cores > best.MilliCores {
		return fmt.Sprintf("no node%s has %s cores: the largest, %s, has %s", which, cores, best.Name, best.MilliCores),
			".task.resources.cores"
	}
	best = largest(able, func(n *muster.Node) int64 { return int64(n.Memory) })
	if _, memory := best.Share(r); memory > best.Memory {
		return fmt.Sprintf("no node%s has %s of memory: the largest, %s, has %s", which, memory.Human(), best.Name, best.Memory.Human()),
			".task.resources.memory"
	}
	return d.explainCount(nodes, models)
}

func (d *demand) explainConstraints(nodes []*muster.Node) string {
	nearest, met := nodes[0], -1
	for _, n := range nodes {
		count := 0
		for _, holds := range d.rules {
			if holds(n) {
				count++
			}
		}
		if count > met {
			nearest, met = n, count
		}
	}
	c := &d.g.Constraints[slices.IndexFunc(d.rules, func(holds func(*muster.Node) bool) bool { return !holds(nearest) })]
	has := "has none"
	if value, ok := nearest.Attribute(c.Attribute); ok {
		has = fmt.Sprintf("has %q", value)
	}
	return fmt.Sprintf("no node meets its constraints: on the nearest, %s, %s %s %q does not hold: it %s",
		nearest.Name, c.Attribute, c.Operator, c.Value, has)
}

func explainGPUs(r *muster.Resources, nodes []*muster.Node) (why, field string) {
	byModel := muster.Resources{Models: r.Models}
	most := func(fits *muster.Resources) (*muster.Node, int) {
		best := largest(nodes, func(n *muster.Node) int64 { return int64(fittingGPUs(n, fits.FitsGPU)) })
		return best, fittingGPUs(best, fits.FitsGPU)
	}
	if best, n := most(&muster.Resources{}); n == 0 {
		return fmt.Sprintf("no node has %s: the largest, %s, has 0", wanted(r), best.Name), ".task.resources.gpus"
	}
	if _, n := most(&byModel); n == 0 {
		best, _ := most(&muster.Resources{})
		return fmt.Sprintf("no node has a GPU of model %s: the nearest, %s, has %s", strings.Join(r.Models, " or "), best.Name,
			best.GPUs[0].Model), ".task.resources.models"
	}
	if _, n := most(r); n == 0 {
		size := func(n *muster.Node) int64 {
			var size muster.Bytes
			for slot := range n.GPUs {
				if byModel.FitsGPU(&n.GPUs[slot]) {
					size = max(size, n.GPUs[slot].Memory)
				}
			}
			return int64(size)
		}
		best := largest(nodes, size)
		return fmt.Sprintf("no node has a GPU of %s: the largest is on %s and has %s", r.MinMemory.Human(), best.Name,
			muster.Bytes(size(best)).Human()), ".task.resources.min_memory"
	}
	best, count := (*muster.Node)(nil), -1
	for _, n := range nodes {
		for _, model := range gpuModels([]*muster.Node{n}) {
			if have := modelGPUs(r, n, model); have > count {
				best, count = n, have
			}
		}
	}
	if count >= r.GPUs {
		return "", ""
	}
	return fmt.Sprintf("no node has %s: the largest, %s, has %d", wanted(r), best.Name, count), ".task.resources.gpus"
}

func modelGPUs(r *muster.Resources, n *muster.Node, model string) int {
	return fittingGPUs(n, func(g *muster.GPU) bool { return g.Model == model && r.FitsGPU(g) })
}

// wanted describes the GPUs of a rank: "8 GPUs of model H100 or H200 with 80GiB".
func wanted(r *muster.Resources) string {
	s := fmt.Sprintf("%d GPUs", r.GPUs)
	if r.GPUs == 1 {
		s = "1 GPU"
	}
	if len(r.Models) > 0 {
		s += " of model " + strings.Join(r.Models, " or ")
	}
	if r.MinMemory > 0 {
		s += " with " + r.MinMemory.Human()
	}
	return s
}

func (d *demand) explainCount(nodes []*muster.Node, models []string) (why, field string) {
	best, ranks := "", -1
	for _, model := range models {
		if domain, n := d.roomiest(nodes, model); n > ranks {
			best, ranks = domain, n
		}
	}
	switch {
	case d.g.Within == "":
		return fmt.Sprintf("all nodes together could hold %d of its %d ranks", ranks, d.g.Count), ".count"
	case best == "":
		return fmt.Sprintf("no node has the label %q, which the job must not leave", d.g.Within), ".within"
	}
	return fmt.Sprintf("no %s could hold all %d ranks: the largest, %s, could hold %d", d.g.Within, d.g.Count, best, ranks), ".within"
}

// largest gives the first of the nodes for which size is largest.
func largest(nodes []*muster.Node, size func(*muster.Node) int64) *muster.Node {
	best := nodes[0]
	for _, n := range nodes[1:] {
		if size(n) > size(best) {
			best = n
		}
	}
	return best
}
