package scheduler

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster"
)

// mix is what the cluster's jobs ask for: all that the state knows, those that wait, run, and have ended within the retention.
// Placement keeps room for more of the same. It is a function of the snapshot: counts are exact, and what is worked out of them
// is worked out anew when a count has grown or shrunk by some tenth, by which alone it does not matter when.
type mix struct {
	shares map[int]int64       // ranks, by thousandths of a GPU
	models map[modelsKey]int64 // thousandths of GPUs
	asked  int64               // thousandths of GPUs by ranks that name their cores
	cores  int64               // milli-cores of those
	plain  int64               // thousandths of GPUs by ranks that get their part of the node's cores

	key     string // of the counts, rounded, and the cluster's GPUs, that the rest was worked out for
	version uint64
	dirty   bool
	pack    packing
	prices  []float64 // by lane id; [0] is not used
	kappa   float64   // milli-cores for each GPU; 0: not known
	bound   bool      // there are prices above 0
	told    bool      // the mix says more than that GPUs are taken whole, with their part of a node
}

// modelsKey is the models and the memory that a rank permits.
type modelsKey struct {
	models string // joined by a zero byte
	memory muster.Bytes
}

func newMix() mix {
	return mix{shares: map[int]int64{}, models: map[modelsKey]int64{}, dirty: true}
}

// count adds jobs of a spec, or takes them off.
func (m *mix) count(spec *muster.JobSpec, jobs int64) {
	if spec == nil || jobs == 0 {
		return
	}
	m.dirty = true
	for i := range spec.Groups {
		g := &spec.Groups[i]
		r := &g.Task.Resources
		n := jobs * int64(g.Count)
		if r.GPUs == 0 {
			continue
		}
		milli := int64(r.GPUs) * 1000
		if r.Share > 0 {
			milli = int64(r.Share)
			add(m.shares, int(r.Share), n)
		}
		if r.MilliCores > 0 {
			m.asked += n * milli
			m.cores += n * int64(r.MilliCores)
		} else {
			m.plain += n * milli
		}
		add(m.models, modelsKey{strings.Join(r.Models, "\x00"), r.MinMemory}, n*milli)
	}
}

func add[K comparable](counts map[K]int64, key K, n int64) {
	if counts[key] += n; counts[key] == 0 {
		delete(counts, key)
	}
}

// rough rounds a count to a step of some tenth.
func rough(n int64) int { return int(math.Round(math.Log(float64(n)+1) * 8)) }

// weight is the count that rough stands for.
func weight(step int) float64 { return math.Exp(float64(step)/8) - 1 }

// refresh works the mix out anew when it has changed enough to matter.
func (v *View) refreshMix() {
	m := &v.mix
	if !m.dirty {
		return
	}
	m.dirty = false
	v.kappaOf()
	defer func() { m.told = len(m.shares) > 0 || m.asked > 0 || m.bound }()
	sizes := make([]int, 0, len(m.shares))
	for milli := range m.shares {
		sizes = append(sizes, milli)
	}
	slices.Sort(sizes)
	permits := make([]modelsKey, 0, len(m.models))
	for key := range m.models {
		permits = append(permits, key)
	}
	slices.SortFunc(permits, func(a, b modelsKey) int {
		return cmp.Or(strings.Compare(a.models, b.models), cmp.Compare(a.memory, b.memory))
	})
	var key strings.Builder
	note := func(n int) {
		key.WriteString(strconv.Itoa(n))
		key.WriteByte(0)
	}
	var demand []shareDemand
	byUnits := map[int]int{}
	for _, milli := range sizes {
		step := rough(m.shares[milli])
		note(milli)
		note(step)
		units := unitsOf(milli)
		at, ok := byUnits[units]
		if !ok {
			at = len(demand)
			byUnits[units] = at
			demand = append(demand, shareDemand{units: units})
		}
		demand[at].weight += weight(step)
	}
	for _, permit := range permits {
		key.WriteString(permit.models)
		note(int(permit.memory >> 20))
		note(rough(m.models[permit]))
	}
	for _, l := range v.lanes {
		key.WriteString(l.model)
		note(l.total)
	}
	if key.String() == m.key && m.version > 0 {
		return
	}
	m.key = key.String()
	m.version++
	m.pack = newPacking(demand)
	v.priceModels(permits)
}

// kappaOf reckons the cores that come with a GPU in the mix. Ranks that get their part of a node count as the cluster is.
func (v *View) kappaOf() {
	m := &v.mix
	m.kappa = 0
	if m.asked == 0 {
		return
	}
	asked := float64(m.cores)
	if v.gpus > 0 {
		asked += float64(m.plain) / 1000 * float64(v.gpuCores) / float64(v.gpus)
	}
	m.kappa = asked / (float64(m.asked+m.plain) / 1000)
}

// priceModels reckons how scarce each model is. The models stand in the order of their names, so that equal clusters get
// equal prices to the last bit.
func (v *View) priceModels(permits []modelsKey) {
	m := &v.mix
	lanes := slices.DeleteFunc(slices.Clone(v.lanes), func(l *lane) bool { return l.total == 0 })
	slices.SortFunc(lanes, func(a, b *lane) int { return strings.Compare(a.model, b.model) })
	capacity := make([]float64, len(lanes))
	for i, l := range lanes {
		capacity[i] = float64(l.total)
	}
	demands := make([]modelDemand, 0, len(permits))
	for _, permit := range permits {
		r := muster.Resources{MinMemory: permit.memory}
		if permit.models != "" {
			r.Models = strings.Split(permit.models, "\x00")
		}
		d := modelDemand{permits: make([]bool, len(lanes)), gpus: weight(rough(m.models[permit]))}
		for i, l := range lanes {
			d.permits[i] = slices.ContainsFunc(v.chassis, func(c *chassis) bool {
				return slices.ContainsFunc(c.parts, func(p part) bool { return p.gpu.Model == l.model && r.FitsGPU(&p.gpu) })
			})
		}
		demands = append(demands, d)
	}
	m.prices, m.bound = make([]float64, 1+len(v.lanes)), false
	for i, price := range modelPrices(demands, capacity) {
		if price > 1e-9 {
			m.prices[lanes[i].id], m.bound = price, true
		}
	}
}
