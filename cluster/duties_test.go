package cluster

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// register makes a node known, with two GPUs.
func (c *cluster) register() {
	c.t.Helper()
	node := wire.CommandOf(&state.RegisterNode{Node: muster.Node{
		Name: "gpu-1", Address: "10.0.0.1:1", IP: "10.0.0.1", Hardware: "hw", Boot: "boot", Instance: "instance", Session: "session-1",
		MilliCores: 64000, Memory: 512 * muster.GiB, PortLow: 20000, PortHigh: 30000, GPUs: []muster.GPU{
			{UUID: "GPU-1", Model: "NVIDIA H100 80GB HBM3", Memory: 80 * muster.GiB, Health: muster.GPUHealthy},
		},
	}})
	c.eventually("a leader that takes the node", func() bool {
		reply, err := c.leader().Propose(c.context(), node)
		return err == nil && reply.Result.Err == nil
	})
}

func TestTheLeaderPlacesWhatFitsAndExplainsWhatWaits(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.register()
	c.submit("first")
	c.submit("second")
	phase := func(id muster.JobID) muster.JobPhase {
		job, _ := c.leader().hub.newest().snapshot.Job(id)
		return job.Phase
	}
	var ids []muster.JobID
	for job := range c.leader().hub.newest().snapshot.Jobs(0) {
		ids = append(ids, job.ID)
	}
	c.eventually("the first to be placed", func() bool { return phase(ids[0]).Placed() })
	if got := phase(ids[1]); got != muster.JobPending {
		t.Errorf("the second is %v, and there is one GPU", got)
	}
	c.eventually("an explanation", func() bool {
		why, err := c.leader().Explain(c.context(), ids[1])
		return err == nil && why.Headline != "" && why.Position == 1 && why.Job.Name == "second"
	})
	if _, err := c.leader().Explain(c.context(), 999_999); muster.KindOf(err) != muster.KindNotFound {
		t.Errorf("a job that does not exist: %v", err)
	}
}

// Two agents' files bear one name. While the first is there the second is told so; once the first is gone, the second may have it.
func TestANameThatAnotherMachineBearsIsRefusedWhileThatOneIsThere(t *testing.T) {
	c := startCluster(t, 1, nil)
	c.register()
	renew := func(r *wire.NodeRenew) {
		t.Helper()
		if _, err := c.leader().Renew(c.context(), &wire.RenewBatch{Renewals: []*wire.NodeRenew{r}}); err != nil {
			t.Fatal(err)
		}
	}
	renew(&wire.NodeRenew{Node: 1, Session: "session-1", Renew: &wire.Renew{}})
	second := wire.CommandOf(&state.RegisterNode{Replaces: "session-1", Node: muster.Node{
		Name: "gpu-1", Address: "10.0.0.2:1", IP: "10.0.0.2", Hardware: "other", Boot: "other", Instance: "other", Session: "session-2",
		MilliCores: 64000, Memory: 512 * muster.GiB, PortLow: 20000, PortHigh: 30000,
	}})
	_, err := c.leader().Propose(c.context(), second)
	if muster.KindOf(err) != muster.KindConflict || !strings.Contains(err.Error(), "another machine, at 10.0.0.1:1, is called gpu-1") {
		t.Fatalf("the second of the name got: %v", err)
	}
	renew(&wire.NodeRenew{Node: 1, Session: "session-1", Silent: true})
	if reply, err := c.leader().Propose(c.context(), second); err != nil || reply.Result.Err != nil {
		t.Errorf("once the first is gone: %v, %v", reply, err)
	}
}

func TestRenewalsAreAnsweredInOrder(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.register()
	var reply *wire.RenewBatchReply
	c.eventually("an answer", func() (ok bool) {
		var err error
		reply, err = c.leader().Renew(c.context(), &wire.RenewBatch{Renewals: []*wire.NodeRenew{
			{Node: 1, Session: "an older one", Renew: &wire.Renew{}},
			{Node: 1, Session: "session-1", Renew: &wire.Renew{}},
			{Node: 99, Session: "session-1", Renew: &wire.Renew{}},
		}})
		return err == nil
	})
	if len(reply.Ok) != 3 || reply.Ok[0] || !reply.Ok[1] || reply.Ok[2] {
		t.Errorf("answered %v, want only the second", reply.Ok)
	}
}

func TestABrokenStreamMakesANodeSuspect(t *testing.T) {
	c := startCluster(t, 1, nil)
	c.register()
	if _, err := c.leader().Renew(c.context(), &wire.RenewBatch{Renewals: []*wire.NodeRenew{{Node: 1, Session: "session-1", Silent: true}}}); err != nil {
		t.Fatal(err)
	}
	c.eventually("suspicion", func() bool {
		reply, err := c.leader().Suspects(c.context())
		return err == nil && len(reply.Nodes) == 1 && strings.Contains(reply.Nodes[0].Reason, "broke")
	})
	c.submit("waits")
	c.eventually("a reason", func() bool {
		why, err := c.leader().Explain(c.context(), 1)
		return err == nil && len(why.Reasons) > 0 && why.Reasons[0].Kind == "suspect"
	})
}
