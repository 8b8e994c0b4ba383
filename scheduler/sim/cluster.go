package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/scheduler"
)

// start is when every simulation begins; traces count from there.
var start = muster.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

const term = 1

// Cluster is a replicated state with the scheduler's view of it, in virtual time.
type Cluster struct {
	state *state.State
	snap  *state.Snapshot
	view  *scheduler.View
	index muster.Index
	now   time.Duration // since start
}

// newCluster registers the nodes, in an order drawn from the seed: nodes that do equally well are taken in that order, and no
// policy may depend on how a file happens to list them.
func newCluster(nodes []Node, seed uint64) (*Cluster, error) {
	c := &Cluster{state: state.New()}
	c.snap = c.state.Snapshot()
	c.view = scheduler.NewView(c.snap)
	commands := []state.Command{&state.InitCluster{ClusterID: "simulation"}}
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(nodes)) {
		commands = append(commands, &state.RegisterNode{Node: machineOf(&nodes[i])})
	}
	_, err := c.apply(commands...)
	return c, err
}

func machineOf(n *Node) muster.Node {
	m := muster.Node{Name: n.Name, Hardware: n.Name, Boot: "1", Instance: "1", Session: "1", Labels: n.Labels,
		MilliCores: n.MilliCores, Memory: n.Memory, Fencing: "strong", GPUs: make([]muster.GPU, n.GPUs)}
	for slot := range m.GPUs {
		m.GPUs[slot] = muster.GPU{UUID: fmt.Sprintf("%s/%d", n.Name, slot), Model: n.Model, Health: muster.GPUHealthy}
	}
	return m
}

// time is the state's clock.
func (c *Cluster) time() muster.Time { return start.Add(c.now) }

// apply applies one entry, none of whose commands the state may refuse, and brings the view forward.
func (c *Cluster) apply(commands ...state.Command) ([]state.Result, error) {
	c.index++
	results, changed := c.state.Apply(state.Entry{Stamp: c.time(), Commands: commands}, c.index, term)
	c.snap = c.state.Snapshot()
	c.view.Advance(c.snap, changed)
	for i := range results {
		if err := results[i].Err; err != nil {
			return nil, err
		}
	}
	return results, nil
}

// submit hands jobs in, one command for each run of jobs of one user, and gives their numbers in order.
func (c *Cluster) submit(users []string, specs []*muster.JobSpec, first ...state.Command) ([]muster.JobID, error) {
	commands := first
	for i := 0; i < len(specs); {
		end := i + 1
		for end < len(specs) && users[end] == users[i] {
			end++
		}
		commands = append(commands, &state.Submit{Header: state.Header{User: users[i]}, Specs: specs[i:end]})
		i = end
	}
	if len(commands) == 0 {
		return nil, nil
	}
	results, err := c.apply(commands...)
	if err != nil {
		return nil, err
	}
	var ids []muster.JobID
	for _, r := range results[len(first):] {
		ids = append(ids, r.Jobs...)
	}
	return ids, nil
}

// reports gathers what workers say, one command for each node.
type reports struct {
	of    map[muster.NodeID]int
	order []*state.ReportAllocs
}

func (r *reports) add(node muster.NodeID, report muster.AllocReport) {
	if r.of == nil {
		r.of = map[muster.NodeID]int{}
	}
	at, ok := r.of[node]
	if !ok {
		at = len(r.order)
		r.of[node] = at
		r.order = append(r.order, &state.ReportAllocs{Node: node})
	}
	r.order[at].Allocs = append(r.order[at].Allocs, report)
}

// take gives the commands and forgets them.
func (r *reports) take() []state.Command {
	commands := make([]state.Command, len(r.order))
	for i, c := range r.order {
		commands[i] = c
	}
	clear(r.of)
	r.order = nil
	return commands
}

// liveAllocs lists what of a job's newest attempt has not ended.
func (c *Cluster) liveAllocs(job *muster.Job) []*muster.Allocation {
	var live []*muster.Allocation
	for a := range c.snap.AllocsOfAttempt(job.ID, job.Attempt) {
		if a.Phase != muster.AllocEnded {
			live = append(live, a)
		}
	}
	return live
}
