package wire

import (
	"fmt"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// CommandOf converts a command.
func CommandOf(c state.Command) *Command {
	switch c := c.(type) {
	case *state.Submit:
		return &Command{Command: &Command_Submit{&Submit{
			Header: headerOf(&c.Header),
			Specs:  specsOf(c.Specs),
			Pend:   c.Pend,
			Name:   c.Name,

			Hold:        c.Hold,
			StartWithin: int64(c.StartWithin),
			Groups:      c.Groups,
		}}}
	case *state.Cancel:
		return &Command{Command: &Command_Cancel{&Cancel{
			Header: headerOf(&c.Header), Jobs: numbersOf[uint64](c.Jobs), Mode: uint32(c.Mode)}}}
	case *state.Release:
		return &Command{Command: &Command_Release{&Release{Header: headerOf(&c.Header), Jobs: numbersOf[uint64](c.Jobs)}}}
	case *state.Hold:
		return &Command{Command: &Command_Hold{&Hold{Header: headerOf(&c.Header), Jobs: numbersOf[uint64](c.Jobs)}}}
	case *state.SetPriority:
		return &Command{Command: &Command_SetPriority{&SetPriority{
			Header: headerOf(&c.Header), Jobs: numbersOf[uint64](c.Jobs), Priority: int64(c.Priority)}}}
	case *state.Requeue:
		return &Command{Command: &Command_Requeue{&Requeue{Header: headerOf(&c.Header), Jobs: numbersOf[uint64](c.Jobs)}}}
	case *state.RemoveNodes:
		return &Command{Command: &Command_RemoveNodes{&RemoveNodes{Header: headerOf(&c.Header), Nodes: c.Nodes}}}
	case *state.LabelNode:
		return &Command{Command: &Command_LabelNode{&LabelNode{
			Header: headerOf(&c.Header), Node: c.Node, Set: labelsOf(c.Set), Remove: c.Remove}}}
	case *state.StartDue:
		return &Command{Command: &Command_StartDue{&StartDue{Term: c.Term, Jobs: numbersOf[uint64](c.Jobs)}}}
	case *state.DrainNodes:
		return &Command{Command: &Command_DrainNodes{&DrainNodes{
			Header:      headerOf(&c.Header),
			Nodes:       c.Nodes,
			Reason:      c.Reason,
			HasDeadline: c.HasDeadline,
			Deadline:    int64(c.Deadline),
		}}}
	case *state.UndrainNodes:
		return &Command{Command: &Command_UndrainNodes{&UndrainNodes{Header: headerOf(&c.Header), Nodes: c.Nodes}}}
	case *state.FenceNode:
		return &Command{Command: &Command_FenceNode{&FenceNode{Header: headerOf(&c.Header), Node: c.Node}}}
	case *state.ApplyQueues:
		return &Command{Command: &Command_ApplyQueues{&ApplyQueues{
			Header: headerOf(&c.Header), Queues: listOf(c.Queues, QueueSpecOf), Policy: PolicyOf(&c.Policy)}}}
	case *state.RegisterNode:
		return &Command{Command: &Command_RegisterNode{RegisterNodeOf(c)}}
	case *state.ReportAllocs:
		return &Command{Command: &Command_ReportAllocs{&ReportAllocs{
			Node: uint32(c.Node), Allocs: AllocReportsOf(c.Allocs)}}}
	case *state.InitCluster:
		return &Command{Command: &Command_InitCluster{&InitCluster{ClusterId: c.ClusterID}}}
	case *state.CommitPlan:
		return &Command{Command: &Command_CommitPlan{commitPlanOf(c)}}
	case *state.EndLeases:
		return &Command{Command: &Command_EndLeases{&EndLeases{
			Term:    c.Term,
			Node:    uint32(c.Node),
			Session: c.Session,
			Allocs:  AllocIDsOf(c.Allocs),
			Lost:    c.Lost,
			Reason:  c.Reason,
		}}}
	case *state.Wake:
		return &Command{Command: &Command_Wake{&Wake{Term: c.Term, Jobs: numbersOf[uint64](c.Jobs)}}}
	case *state.DrainDue:
		return &Command{Command: &Command_DrainDue{&DrainDue{Term: c.Term, Node: uint32(c.Node)}}}
	case *state.Purge:
		return &Command{Command: &Command_Purge{&Purge{Term: c.Term, Jobs: numbersOf[uint64](c.Jobs)}}}
	}
	panic(fmt.Sprintf("a command of type %T has no wire form", c)) // the set is closed; a test walks it
}

// RegisterNodeOf converts a worker's first word.
func RegisterNodeOf(c *state.RegisterNode) *RegisterNode {
	return &RegisterNode{Node: NodeOf(&c.Node), Seen: VersionOf(c.Seen), Allocs: AllocReportsOf(c.Allocs), Replaces: c.Replaces}
}

func specsOf(specs []*muster.JobSpec) []*JobSpec {
	if len(specs) == 0 {
		return nil
	}
	out := make([]*JobSpec, len(specs))
	for i, s := range specs {
		out[i] = JobSpecOf(s)
	}
	return out
}

func headerOf(h *state.Header) *Header { return &Header{RequestId: h.RequestID, User: h.User} }

func gangPlacementOf(g *state.GangPlacement) *GangPlacement {
	return &GangPlacement{
		Job:     uint64(g.Job),
		Attempt: g.Attempt,
		Ranks:   listOf(g.Ranks, rankPlacementOf),
	}
}

func rankPlacementOf(r *state.RankPlacement) *RankPlacement {
	return &RankPlacement{
		Group:      int64(r.Group),
		Rank:       int64(r.Rank),
		Node:       uint32(r.Node),
		Slots:      uint64(r.Slots),
		Share:      int64(r.Share),
		MilliCores: int64(r.MilliCores),
		Memory:     int64(r.Memory),
	}
}

// Domain converts back. A command that isn't known is an error: whoever applies the log must stop.
func (x *Command) Domain() (state.Command, error) {
	var d decoder
	c := d.command(x)
	if d.err != nil {
		return nil, d.err
	}
	return c, nil
}

func (d *decoder) command(x *Command) state.Command {
	if !d.present("Command", x == nil) {
		return nil
	}
	d.known("Command", x.unknownFields)
	switch c := x.Command.(type) {
	case *Command_Submit:
		return d.submit(c.Submit)
	case *Command_Cancel:
		return decode(d, "Cancel", c.Cancel, func(x *Cancel) state.Command {
			d.known("Cancel", x.unknownFields)
			return &state.Cancel{
				Header: d.header(x.Header),
				Jobs:   numbersOf[muster.JobID](x.Jobs),
				Mode:   enum(d, "Cancel.mode", x.Mode, muster.StopKill),
			}
		})
	case *Command_Release:
		return decode(d, "Release", c.Release, func(x *Release) state.Command {
			d.known("Release", x.unknownFields)
			return &state.Release{Header: d.header(x.Header), Jobs: numbersOf[muster.JobID](x.Jobs)}
		})
	case *Command_Hold:
		return decode(d, "Hold", c.Hold, func(x *Hold) state.Command {
			d.known("Hold", x.unknownFields)
			return &state.Hold{Header: d.header(x.Header), Jobs: numbersOf[muster.JobID](x.Jobs)}
		})
	case *Command_SetPriority:
		return decode(d, "SetPriority", c.SetPriority, func(x *SetPriority) state.Command {
			d.known("SetPriority", x.unknownFields)
			return &state.SetPriority{Header: d.header(x.Header), Jobs: numbersOf[muster.JobID](x.Jobs),
				Priority: d.number("SetPriority.priority", x.Priority)}
		})
	case *Command_Requeue:
		return decode(d, "Requeue", c.Requeue, func(x *Requeue) state.Command {
			d.known("Requeue", x.unknownFields)
			return &state.Requeue{Header: d.header(x.Header), Jobs: numbersOf[muster.JobID](x.Jobs)}
		})
	case *Command_RemoveNodes:
		return decode(d, "RemoveNodes", c.RemoveNodes, func(x *RemoveNodes) state.Command {
			d.known("RemoveNodes", x.unknownFields)
			return &state.RemoveNodes{Header: d.header(x.Header), Nodes: x.Nodes}
		})
	case *Command_LabelNode:
		return decode(d, "LabelNode", c.LabelNode, func(x *LabelNode) state.Command {
			d.known("LabelNode", x.unknownFields)
			return &state.LabelNode{Header: d.header(x.Header), Node: x.Node, Set: d.labels(x.Set), Remove: x.Remove}
		})
	case *Command_DrainNodes:
		return decode(d, "DrainNodes", c.DrainNodes, func(x *DrainNodes) state.Command {
			d.known("DrainNodes", x.unknownFields)
			return &state.DrainNodes{
				Header:      d.header(x.Header),
				Nodes:       x.Nodes,
				Reason:      x.Reason,
				HasDeadline: x.HasDeadline,
				Deadline:    d.duration("DrainNodes.deadline", x.Deadline),
			}
		})
	case *Command_UndrainNodes:
		return decode(d, "UndrainNodes", c.UndrainNodes, func(x *UndrainNodes) state.Command {
			d.known("UndrainNodes", x.unknownFields)
			return &state.UndrainNodes{Header: d.header(x.Header), Nodes: x.Nodes}
		})
	case *Command_FenceNode:
		return decode(d, "FenceNode", c.FenceNode, func(x *FenceNode) state.Command {
			d.known("FenceNode", x.unknownFields)
			return &state.FenceNode{Header: d.header(x.Header), Node: x.Node}
		})
	case *Command_ApplyQueues:
		return decode(d, "ApplyQueues", c.ApplyQueues, func(x *ApplyQueues) state.Command {
			d.known("ApplyQueues", x.unknownFields)
			return &state.ApplyQueues{
				Header: d.header(x.Header),
				Queues: domainList(d, "ApplyQueues.queues", x.Queues, d.queueSpec),
				Policy: d.policy(x.Policy),
			}
		})
	case *Command_RegisterNode:
		return decode(d, "RegisterNode", c.RegisterNode, func(x *RegisterNode) state.Command { return d.registerNode(x) })
	case *Command_ReportAllocs:
		return decode(d, "ReportAllocs", c.ReportAllocs, func(x *ReportAllocs) state.Command {
			d.known("ReportAllocs", x.unknownFields)
			return &state.ReportAllocs{
				Node:   muster.NodeID(x.Node),
				Allocs: domainList(d, "ReportAllocs.allocs", x.Allocs, d.allocReport),
			}
		})
	case *Command_InitCluster:
		return decode(d, "InitCluster", c.InitCluster, func(x *InitCluster) state.Command {
			d.known("InitCluster", x.unknownFields)
			return &state.InitCluster{ClusterID: x.ClusterId}
		})
	default:
		return d.duty(x)
	}
}

// duty decodes the commands that only a leader makes.
func (d *decoder) duty(x *Command) state.Command {
	switch c := x.Command.(type) {
	case *Command_CommitPlan:
		return decode(d, "CommitPlan", c.CommitPlan, func(x *CommitPlan) state.Command {
			d.known("CommitPlan", x.unknownFields)
			return &state.CommitPlan{
				Term:      x.Term,
				Gangs:     domainList(d, "CommitPlan.gangs", x.Gangs, d.gangPlacement),
				Unhold:    numbersOf[muster.JobID](x.Unhold),
				Evictions: domainList(d, "CommitPlan.evictions", x.Evictions, d.eviction),
				Claims:    domainList(d, "CommitPlan.claims", x.Claims, d.claim),
			}
		})
	case *Command_EndLeases:
		return decode(d, "EndLeases", c.EndLeases, func(x *EndLeases) state.Command {
			d.known("EndLeases", x.unknownFields)
			return &state.EndLeases{
				Term:    x.Term,
				Node:    muster.NodeID(x.Node),
				Session: x.Session,
				Allocs:  domainList(d, "EndLeases.allocs", x.Allocs, d.allocID),
				Lost:    x.Lost,
				Reason:  x.Reason,
			}
		})
	case *Command_Wake:
		return decode(d, "Wake", c.Wake, func(x *Wake) state.Command {
			d.known("Wake", x.unknownFields)
			return &state.Wake{Term: x.Term, Jobs: numbersOf[muster.JobID](x.Jobs)}
		})
	case *Command_StartDue:
		return decode(d, "StartDue", c.StartDue, func(x *StartDue) state.Command {
			d.known("StartDue", x.unknownFields)
			return &state.StartDue{Term: x.Term, Jobs: numbersOf[muster.JobID](x.Jobs)}
		})
	case *Command_DrainDue:
		return decode(d, "DrainDue", c.DrainDue, func(x *DrainDue) state.Command {
			d.known("DrainDue", x.unknownFields)
			return &state.DrainDue{Term: x.Term, Node: muster.NodeID(x.Node)}
		})
	case *Command_Purge:
		return decode(d, "Purge", c.Purge, func(x *Purge) state.Command {
			d.known("Purge", x.unknownFields)
			return &state.Purge{Term: x.Term, Jobs: numbersOf[muster.JobID](x.Jobs)}
		})
	default:
		d.fail("a command isn't known: this server is older than what wrote it")
		return nil
	}
}

// decode reads the part that a choice holds.
func decode[M, D any](d *decoder, name string, part *M, convert func(*M) D) D {
	if !d.present(name, part == nil) {
		var none D
		return none
	}
	return convert(part)
}

func (d *decoder) header(x *Header) state.Header {
	if x == nil {
		return state.Header{}
	}
	d.known("Header", x.unknownFields)
	return state.Header{RequestID: x.RequestId, User: x.User}
}

func (d *decoder) submit(x *Submit) state.Command {
	if !d.present("Submit", x == nil) {
		return nil
	}
	d.known("Submit", x.unknownFields)
	return &state.Submit{
		Header: d.header(x.Header),
		Specs:  domainList(d, "Submit.specs", x.Specs, d.jobSpec),
		Pend:   x.Pend,
		Name:   x.Name,

		Hold:        x.Hold,
		StartWithin: d.duration("Submit.start_within", x.StartWithin),
		Groups:      x.Groups,
	}
}

// Domain converts back.
func (x *RegisterNode) Domain() (*state.RegisterNode, error) {
	var d decoder
	if !d.present("RegisterNode", x == nil) {
		return nil, d.err
	}
	c := d.registerNode(x)
	return c, d.err
}

func (d *decoder) registerNode(x *RegisterNode) *state.RegisterNode {
	d.known("RegisterNode", x.unknownFields)
	c := &state.RegisterNode{Replaces: x.Replaces, Seen: d.version(x.Seen), Allocs: domainList(d, "RegisterNode.allocs", x.Allocs, d.allocReport)}
	if n := d.node(x.Node); n != nil {
		c.Node = *n
	}
	return c
}

func (d *decoder) gangPlacement(x *GangPlacement) state.GangPlacement {
	d.known("GangPlacement", x.unknownFields)
	return state.GangPlacement{
		Job:     muster.JobID(x.Job),
		Attempt: x.Attempt,
		Ranks:   domainList(d, "GangPlacement.ranks", x.Ranks, d.rankPlacement),
	}
}

func (d *decoder) rankPlacement(x *RankPlacement) state.RankPlacement {
	d.known("RankPlacement", x.unknownFields)
	return state.RankPlacement{
		Group:      d.count("RankPlacement.group", x.Group),
		Rank:       d.count("RankPlacement.rank", x.Rank),
		Node:       muster.NodeID(x.Node),
		Slots:      muster.SlotSet(x.Slots),
		Share:      muster.MilliGPUs(d.amount("RankPlacement.share", x.Share)),
		MilliCores: muster.MilliCores(d.amount("RankPlacement.milli_cores", x.MilliCores)),
		Memory:     muster.Bytes(d.amount("RankPlacement.memory", x.Memory)),
	}
}
