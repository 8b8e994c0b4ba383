package sim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/scheduler"
)

// Pod is a row of arrivals: something that comes, and never leaves.
type Pod struct {
	Name string
	Need Need
}

// ReadPods reads arrivals: seq,pod,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec.
func ReadPods(path string) ([]Pod, error) {
	return readPods(path, "pod", "seq", "pod", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
}

// ReadHistory reads what a cluster has seen before: name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec.
func ReadHistory(path string) ([]Pod, error) {
	return readPods(path, "name", "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
}

func readPods(path, name string, required ...string) ([]Pod, error) {
	s, err := openSheet(path, required...)
	if err != nil {
		return nil, err
	}
	var pods []Pod
	for s.next() {
		pods = append(pods, Pod{s.text(name), readNeed(s, "num_gpu")})
	}
	return pods, s.err
}

// Placement is what a replay of arrivals is given.
type Placement struct {
	Nodes    []Node
	Arrivals []Pod
	History  []Pod // what was seen before
	Policy   *muster.Policy
	Queues   []muster.QueueSpec
	Seed     uint64
	Progress func(done, of int) // may be nil
}

// Placed is where a pod came to stand; Node is "" when it was rejected.
type Placed struct {
	Node  string
	Slots muster.SlotSet
}

// PlacementResult is what came of a replay of arrivals.
type PlacementResult struct {
	Pods      []Pod
	Placed    []Placed // by arrival
	GPUs      int
	Rejected  int
	Arrived   float64 // GPUs asked for, over the cluster's
	Allocated float64 // GPUs given out at the end, over the cluster's
	AtFull    float64 // the same, while arrivals come to 99.5 to 100.5 % of the cluster; 0 when they never do
	CPU, RAM  float64 // given out at the end
	Stranded  float64 // GPUs not given out on nodes that have no core left, over the cluster's
	BySize    []PlacedBySize
}

// PlacedBySize counts pods of one size.
type PlacedBySize struct {
	Name              string
	Arrived, Rejected int
}

// RunPlacement places pods one by one, in order. A pod that fits nowhere is rejected for good.
func RunPlacement(ctx context.Context, cfg *Placement) (*PlacementResult, error) {
	c, err := newCluster(cfg.Nodes, cfg.Seed)
	if err != nil {
		return nil, err
	}
	queues := newQueueTree(cfg.Queues, nil)
	policy := muster.DefaultPolicy()
	if cfg.Policy != nil {
		policy = *cfg.Policy
	}
	policy.Preemption, policy.Backfill, policy.Reservations = muster.PreemptOff, muster.BackfillEASY, 0 // nobody waits
	if err := c.applyQueues(queues, &policy); err != nil {
		return nil, err
	}
	if err := c.remember(cfg.History); err != nil {
		return nil, err
	}
	r := &PlacementResult{Pods: cfg.Arrivals}
	count := tally{gpus: 0}
	for i := range cfg.Nodes {
		r.GPUs += cfg.Nodes[i].GPUs
	}
	count.of(cfg.Nodes)
	for i := range cfg.Arrivals {
		if i%256 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if cfg.Progress != nil {
				cfg.Progress(i, len(cfg.Arrivals))
			}
		}
		c.now += time.Second
		placed, err := c.arrive(&cfg.Arrivals[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cfg.Arrivals[i].Name, err)
		}
		r.Placed = append(r.Placed, placed)
		count.add(&cfg.Arrivals[i].Need, placed.Node != "")
	}
	if cfg.Progress != nil {
		cfg.Progress(len(cfg.Arrivals), len(cfg.Arrivals))
	}
	count.into(r)
	for n := range c.snap.Nodes() {
		if n.FreeMilliCores < 1000 {
			r.Stranded += float64(n.FreeSlots.Count()) / float64(max(r.GPUs, 1))
		}
	}
	return r, nil
}

// remember lets the state know of jobs that were asked for before, and have ended.
func (c *Cluster) remember(history []Pod) error {
	const batch = 1024
	for len(history) > 0 {
		n := min(batch, len(history))
		submit := &state.Submit{Pend: true}
		for i := range history[:n] {
			submit.Specs = append(submit.Specs, podSpec(&history[i].Need))
		}
		results, err := c.apply(submit)
		if err != nil {
			return err
		}
		if _, err := c.apply(&state.Cancel{Jobs: results[0].Jobs, Mode: muster.StopKill}); err != nil {
			return err
		}
		history = history[n:]
	}
	return nil
}

func podSpec(n *Need) *muster.JobSpec {
	s := muster.DefaultJobSpec()
	s.Name = "pod"
	g := muster.DefaultGroup()
	g.Name, g.Task.Name, g.Task.Command = "pod", "pod", "true"
	g.Task.Resources = resourcesOf(n, n.GPUs)
	s.Groups = append(s.Groups, g)
	s.FillDefaults()
	return &s
}

// arrive submits a pod and places it, or takes it back.
func (c *Cluster) arrive(p *Pod) (Placed, error) {
	results, err := c.apply(&state.Submit{Specs: []*muster.JobSpec{podSpec(&p.Need)}, Pend: true})
	if err != nil {
		return Placed{}, err
	}
	id := results[0].Jobs[0]
	plan := scheduler.Schedule(c.view, scheduler.Signals{}, c.time())
	if len(plan.Gangs) == 0 {
		_, err := c.apply(&state.Cancel{Jobs: []muster.JobID{id}, Mode: muster.StopKill})
		return Placed{}, err
	}
	if results, err = c.apply(&state.CommitPlan{Term: term, Gangs: plan.Gangs}); err != nil {
		return Placed{}, err
	}
	for _, refusal := range results[0].Refused {
		return Placed{}, fmt.Errorf("the state refused what the scheduler decided: %s", refusal.Reason)
	}
	rank := &plan.Gangs[0].Ranks[0]
	n, _ := c.snap.Node(rank.Node)
	return Placed{n.Name, rank.Slots}, nil
}

// tally adds up what arrived and what was given out.
type tally struct {
	capacity, gpus     int64 // thousandths of GPUs
	arrived            int64
	cores, totalCores  muster.MilliCores
	memory, totalBytes muster.Bytes
	atFull             float64
	samples            int
	sizes              []PlacedBySize
	rejected           int
}

func (t *tally) of(nodes []Node) {
	for i := range nodes {
		t.capacity += int64(nodes[i].GPUs) * 1000
		t.totalCores += nodes[i].MilliCores
		t.totalBytes += nodes[i].Memory
	}
}

func (t *tally) add(n *Need, placed bool) {
	milli := int64(n.GPUs * n.Milli)
	t.arrived += milli
	name := sizeName(n)
	at := 0
	for at < len(t.sizes) && t.sizes[at].Name != name {
		at++
	}
	if at == len(t.sizes) {
		t.sizes = append(t.sizes, PlacedBySize{Name: name})
	}
	t.sizes[at].Arrived++
	if placed {
		t.gpus += milli
		t.cores += n.MilliCores
		t.memory += n.Memory
	} else {
		t.sizes[at].Rejected++
		t.rejected++
	}
	if share := ratio(float64(t.arrived), float64(t.capacity)); share >= 0.995 && share <= 1.005 {
		t.atFull += ratio(float64(t.gpus), float64(t.capacity))
		t.samples++
	}
}

func (t *tally) into(r *PlacementResult) {
	r.Rejected = t.rejected
	r.Arrived = ratio(float64(t.arrived), float64(t.capacity))
	r.Allocated = ratio(float64(t.gpus), float64(t.capacity))
	r.AtFull = ratio(t.atFull, float64(t.samples))
	r.CPU = ratio(float64(t.cores), float64(t.totalCores))
	r.RAM = ratio(float64(t.memory), float64(t.totalBytes))
	sortSizes(t.sizes)
	r.BySize = t.sizes
}

// WritePlacements writes seq,pod,node,gpus.
func (r *PlacementResult) WritePlacements(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "seq,pod,node,gpus")
	for i := range r.Pods {
		slots := r.Placed[i].Slots.Slots()
		text := make([]string, len(slots))
		for k, slot := range slots {
			text[k] = strconv.Itoa(slot)
		}
		fmt.Fprintf(b, "%d,%s,%s,%s\n", i, r.Pods[i].Name, r.Placed[i].Node, strings.Join(text, "-"))
	}
	return b.Flush()
}
