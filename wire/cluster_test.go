package wire

import (
	"fmt"
	"testing"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// A cluster is a state with what tests do to it.
type cluster struct {
	t     testing.TB
	state *state.State
	index muster.Index
	now   muster.Time
}

const clusterTerm = 3

// newCluster has two nodes, w1 and w2, of eight GPUs each.
func newCluster(t testing.TB) *cluster {
	c := &cluster{t: t, state: state.New(), now: 1_790_000_000_000}
	for i, name := range []string{"w1", "w2"} {
		n := muster.Node{Name: name, Address: name + ":4691", IP: fmt.Sprintf("10.0.0.%d", i+1), Hardware: "hw-" + name, Boot: "b",
			Instance: "i", Session: "s", MilliCores: 64000, Memory: 512 * muster.GiB, Fencing: "strong", Version: "0.1.0",
			PortLow: 20000, PortHigh: 29999, Labels: []muster.Label{{Key: "rack", Value: "r7"}}}
		for slot := range 8 {
			n.GPUs = append(n.GPUs, muster.GPU{UUID: fmt.Sprintf("GPU-%s-%d", name, slot), Model: "NVIDIA H100 80GB HBM3",
				Memory: 81559 * muster.MiB, Health: muster.GPUHealthy})
		}
		c.do(&state.RegisterNode{Node: n})
	}
	return c
}

func (c *cluster) do(command state.Command) state.Result {
	c.t.Helper()
	c.index++
	c.now += 1000
	results, _ := c.state.Apply(state.Entry{Stamp: c.now, Commands: []state.Command{command}}, c.index, clusterTerm)
	if err := results[0].Err; err != nil {
		c.t.Fatalf("%T: %v", command, err)
	}
	return results[0]
}

func (c *cluster) submit(user, name string, ranks, gpus int, labels ...muster.Label) muster.JobID {
	c.t.Helper()
	spec := usualSpec()
	spec.Name, spec.Labels, spec.Groups[0].Name = name, labels, name
	spec.Groups[0].Count = ranks
	spec.Groups[0].Task.Resources.GPUs = gpus
	return c.do(&state.Submit{Header: state.Header{User: user}, Specs: []*muster.JobSpec{spec}, Pend: true}).Jobs[0]
}

// place starts a job's next attempt, its ranks on nodes 1, 2, … with their lowest free GPUs.
func (c *cluster) place(id muster.JobID, nodes ...muster.NodeID) {
	c.t.Helper()
	s := c.state.Snapshot()
	j, _ := s.Job(id)
	spec := s.Spec(j.Spec)
	gang := state.GangPlacement{Job: id, Attempt: j.Attempt + 1}
	taken := map[muster.NodeID]muster.SlotSet{}
	for rank, node := range nodes {
		n, _ := s.Node(node)
		r := &spec.Groups[0].Task.Resources
		cores, memory := n.Share(r)
		slots := n.FreeSlots.Minus(taken[node]).Lowest(r.GPUs)
		taken[node] |= slots
		gang.Ranks = append(gang.Ranks, state.RankPlacement{Rank: rank, Node: node, Slots: slots, MilliCores: cores, Memory: memory})
	}
	if r := c.do(&state.CommitPlan{Term: clusterTerm, Gangs: []state.GangPlacement{gang}}); len(r.Refused) > 0 {
		c.t.Fatalf("the plan was refused: %+v", r.Refused)
	}
}

// report brings all live ranks of a job to a phase; ended ones end with class and code.
func (c *cluster) report(id muster.JobID, phase muster.AllocPhase, class muster.Class, code int) {
	c.t.Helper()
	for a := range c.state.Snapshot().AllocsOfJob(id) {
		if a.Phase != muster.AllocEnded {
			c.do(&state.ReportAllocs{Node: a.Node, Allocs: []muster.AllocReport{{ID: a.ID, Phase: phase, Running: c.now, Class: class,
				ExitCode: code}}})
		}
	}
}

func (c *cluster) run(id muster.JobID, nodes ...muster.NodeID) {
	c.t.Helper()
	c.place(id, nodes...)
	c.report(id, muster.AllocReady, 0, 0)
	c.report(id, muster.AllocRunning, 0, 0)
}

func (c *cluster) finish(id muster.JobID, code int) {
	c.t.Helper()
	class := muster.ClassNone
	if code != 0 {
		class = muster.ClassExit
	}
	c.report(id, muster.AllocEnded, class, code)
}

func (c *cluster) read() *Reader { return ReaderOf(c.state.Snapshot()) }

func (c *cluster) job(id muster.JobID) *JobInfo {
	c.t.Helper()
	info, ok := c.read().Job(id, true, true)
	if !ok {
		c.t.Fatalf("no job %d", id)
	}
	return info
}
