package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

func (a *app) gpusCommand() *cobra.Command {
	var node string
	var idle, watch bool
	cmd := &cobra.Command{
		Use: "gpus", Short: "one line a GPU: node, model, health, job, user", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := &wire.ListNodesRequest{Stale: a.global.stale}
			if node != "" {
				request.Names = []string{node}
			}
			return a.list(cmd.Context(), watch, func(ctx context.Context, client *rpc.Client) (listing, error) {
				reply, err := client.ListNodes(ctx, request)
				if err != nil {
					return listing{}, err
				}
				var gpus []wire.GPUJSON
				for _, gpu := range wire.GPUsJSON(reply.GetNodes()) {
					if !idle || gpu.Job == nil {
						gpus = append(gpus, gpu)
					}
				}
				return a.gpuListing(gpus, reply.GetNodes()), nil
			})
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "of this node")
	cmd.Flags().BoolVar(&idle, "idle", false, "only those that no job holds")
	a.outputFlags(cmd)
	watchFlag(cmd, &watch)
	return cmd
}

func (a *app) gpuListing(gpus []wire.GPUJSON, nodes []*wire.NodeInfo) listing {
	l := listing{items: gpus}
	if gpus == nil {
		l.items = []wire.GPUJSON{}
	}
	for _, gpu := range gpus {
		l.names = append(l.names, gpu.UUID)
	}
	owners := map[uint64]string{}
	for _, n := range nodes {
		for _, j := range n.GetJobs() {
			owners[j.GetJob()] = fmt.Sprintf("%s (%d) of %s", j.GetName(), j.GetJob(), j.GetUser())
		}
	}
	l.table = func() table {
		t := table{header: []string{"GPU", "MODEL", "MEMORY", "HEALTH", "JOB", "UUID"}, state: 3, least: []int{5, 2, 1}}
		for _, gpu := range gpus {
			job := "idle"
			if gpu.Job != nil {
				job = owners[*gpu.Job]
			}
			health := gpu.Health
			if gpu.Reason != "" {
				health += ": " + gpu.Reason
			}
			t.rows = append(t.rows, []string{fmt.Sprintf("%s/%d", gpu.Node, gpu.Index), gpu.Model, gpu.Memory, health, job, gpu.UUID})
		}
		return t
	}
	return l
}

func (a *app) listNodes(ctx context.Context, names []string) (*wire.ListNodesReply, error) {
	client, err := a.dial()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.ListNodes(ctx, &wire.ListNodesRequest{Stale: a.global.stale, Names: names})
}

func laterVerb(noun, name string) *cobra.Command {
	verb := laterCommand(name)
	verb.RunE = func(*cobra.Command, []string) error {
		return muster.Errorf(muster.KindUsage, "muster %s %s is not supported yet", noun, name)
	}
	return verb
}

func (a *app) nodeListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Short: "all nodes; begins with a sum", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := a.listNodes(cmd.Context(), nil)
			if err != nil {
				return err
			}
			nodes := reply.GetNodes()
			l := listing{items: wire.NodesJSON(nodes)}
			for _, n := range nodes {
				l.names = append(l.names, n.GetNode().GetName())
			}
			l.text = func() error {
				if width(a.io.out) > 0 {
					fmt.Fprintln(a.io.out, nodeSum(nodes))
				}
				return nodeTable(nodes).print(a.io.out)
			}
			return a.print(l)
		},
	}
	a.outputFlags(cmd)
	return cmd
}

// nodeSum is the first line of `node ls`: nodes by state, GPUs busy, free and out.
func nodeSum(nodes []*wire.NodeInfo) string {
	states := map[string]int{}
	var total, free, busy int
	for _, n := range nodes {
		states[n.GetState()]++
		total += len(n.GetNode().GetGpus())
		for _, j := range n.GetJobs() {
			busy += muster.SlotSet(j.GetSlots()).Count()
		}
		if n.GetState() == muster.NodeReady.String() {
			free += muster.SlotSet(n.GetNode().GetFreeSlots()).Count()
		}
	}
	var parts []string
	for _, s := range []muster.NodeState{muster.NodeReady, muster.NodeDraining, muster.NodeDrained, muster.NodeSuspect, muster.NodeLost} {
		if n := states[s.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return fmt.Sprintf("%d nodes: %s · %d GPUs: %d busy, %d free, %d out", len(nodes), strings.Join(parts, ", "), total, busy, free, total-busy-free)
}

func nodeTable(nodes []*wire.NodeInfo) table {
	t := table{header: []string{"NODE", "STATE", "GPUS", "MODEL", "CORES", "MEMORY", "JOBS", "REASON"}, state: 1}
	for _, n := range nodes {
		node := n.GetNode()
		free, model := muster.SlotSet(node.GetFreeSlots()).Count(), "-"
		if len(node.GetGpus()) > 0 {
			model = node.GetGpus()[0].GetModel()
		}
		if n.GetState() == muster.NodeLost.String() {
			free = 0
		}
		t.rows = append(t.rows, []string{node.GetName(), n.GetState(), fmt.Sprintf("%d of %d free", free, len(node.GetGpus())), model,
			fmt.Sprintf("%s of %s", muster.MilliCores(node.GetFreeMilliCores()), muster.MilliCores(node.GetMilliCores())),
			fmt.Sprintf("%s of %s", muster.Bytes(node.GetFreeMemory()).Human(), muster.Bytes(node.GetMemory()).Human()),
			strconv.Itoa(len(n.GetJobs())), n.GetReason()})
	}
	return t
}

func (a *app) nodeShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NODE", Short: "everything about a node", Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := a.listNodes(cmd.Context(), args)
			if err != nil {
				return err
			}
			nodes := reply.GetNodes()
			l := listing{items: wire.NodesJSON(nodes), names: args}
			l.text = func() error {
				for _, n := range nodes {
					if err := a.nodeText(n); err != nil {
						return err
					}
				}
				return nil
			}
			return a.print(l)
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func (a *app) nodeText(n *wire.NodeInfo) error {
	node, w := n.GetNode(), a.io.out
	fmt.Fprintf(w, "%s (%d) %s%s\n", node.GetName(), node.GetId(), strings.ToUpper(n.GetState()), because(n.GetReason()))
	field := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-11s%s\n", name, fmt.Sprintf(format, args...))
	}
	field("Address", "%s", node.GetAddress())
	field("Cores", "%s, %s free", muster.MilliCores(node.GetMilliCores()), muster.MilliCores(node.GetFreeMilliCores()))
	field("Memory", "%s, %s free", muster.Bytes(node.GetMemory()).Human(), muster.Bytes(node.GetFreeMemory()).Human())
	field("Fencing", "%s", node.GetFencing())
	field("Version", "%s", node.GetVersion())
	field("Boot", "%s", node.GetBoot())
	for _, label := range node.GetLabels() {
		field("Label", "%s = %s%s", label.GetKey(), label.GetValue(), setOver(node.GetSetLabels(), label.GetKey()))
	}
	if drain := node.GetDrain(); drain.GetOn() {
		until := "what runs ends by itself"
		if drain.GetDeadline() != 0 {
			until = "what still runs is stopped " + a.when(drain.GetDeadline(), time.Now())
		}
		field("Drain", "by %s, %q; %s", drain.GetBy(), drain.GetReason(), until)
	}
	if gpus := wire.GPUsJSON([]*wire.NodeInfo{n}); len(gpus) > 0 {
		return a.gpuListing(gpus, []*wire.NodeInfo{n}).table().print(w)
	}
	field("GPUs", "none")
	return nil
}

func (a *app) serverCommand() *cobra.Command {
	ls := &cobra.Command{
		Use: "ls", Short: "the servers, each answering for itself", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.dial()
			if err != nil {
				return err
			}
			defer client.Close()
			reply, err := client.ListServers(cmd.Context(), &wire.ListServersRequest{Stale: a.global.stale})
			if err != nil {
				return err
			}
			l := listing{items: wire.ServersJSON(reply.GetServers())}
			for _, s := range reply.GetServers() {
				l.names = append(l.names, s.GetName())
			}
			l.table = func() table { return serverTable(reply.GetServers()) }
			return a.print(l)
		},
	}
	a.outputFlags(ls)
	noun := group("server", "servers: ls", ls)
	for _, name := range []string{"transfer", "remove", "recover", "compact"} {
		noun.AddCommand(laterVerb("server", name))
	}
	return noun
}

func serverTable(servers []*wire.ServerInfo) table {
	t := table{header: []string{"NAME", "ROLE", "ADDRESS", "TERM", "APPLIED", "DIGEST", "ID"}, state: -1, least: []int{6, 5}}
	for _, s := range servers {
		role := "follower"
		switch {
		case s.GetError() != "":
			role = "unreachable: " + s.GetError()
		case s.GetLeader():
			role = "leader"
		case !s.GetVoter():
			role = "non-voter"
		}
		t.rows = append(t.rows, []string{s.GetName(), role, s.GetAddress(), strconv.FormatUint(s.GetTerm(), 10),
			strconv.FormatUint(s.GetAppliedIndex(), 10), s.GetDigest(), s.GetId()})
	}
	return t
}
