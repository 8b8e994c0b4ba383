package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

func (a *app) nodeCommand() *cobra.Command {
	noun := group("node", "machines: ls, show, drain, undrain, label, fence, rm",
		a.nodeListCommand(), a.nodeShowCommand(), a.drainCommand(),
		a.nodeVerb("undrain NODE…", "take a drain back", func(ctx context.Context, c *rpc.Client, nodes []string) (*wire.NotesReply, error) {
			return c.UndrainNodes(ctx, &wire.UndrainRequest{RequestId: newRequestID(), Nodes: nodes})
		}),
		a.nodeLabelCommand(),
		a.nodeVerb("fence NODE", "your word that the machine is off: what ran there starts elsewhere now",
			func(ctx context.Context, c *rpc.Client, nodes []string) (*wire.NotesReply, error) {
				if len(nodes) != 1 {
					return nil, muster.Errorf(muster.KindUsage, "fence takes one node: it is a promise about that machine")
				}
				return c.FenceNode(ctx, &wire.FenceRequest{RequestId: newRequestID(), Node: nodes[0]})
			}),
		a.nodeVerb("rm NODE…", "take a machine out that is gone for good: it must be lost, and hold nothing",
			func(ctx context.Context, c *rpc.Client, nodes []string) (*wire.NotesReply, error) {
				return c.RemoveNodes(ctx, &wire.RemoveNodesRequest{RequestId: newRequestID(), Nodes: nodes})
			}),
	)
	for _, name := range []string{"quarantine", "unquarantine"} {
		noun.AddCommand(laterVerb("node", name))
	}
	return noun
}

func (a *app) nodeVerb(use, short string, call func(context.Context, *rpc.Client, []string) (*wire.NotesReply, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(func(client *rpc.Client) (*wire.NotesReply, error) { return call(cmd.Context(), client, args) })
		},
	}
}

func (a *app) drainCommand() *cobra.Command {
	request := &wire.DrainRequest{}
	var deadline string
	var labels []string
	cmd := a.nodeVerb("drain NODE…|-l KEY=VALUE --reason R", "nothing new starts there", func(ctx context.Context, c *rpc.Client, nodes []string) (*wire.NotesReply, error) {
		if len(labels) > 0 {
			var err error
			if nodes, err = nodesLabelled(ctx, c, labels); err != nil {
				return nil, err
			}
		}
		if request.Reason == "" {
			return nil, muster.Errorf(muster.KindUsage, "a drain needs a reason").WithHint("Say: muster node drain %s --reason \"fan\"", nodes[0])
		}
		if deadline != "" {
			d, err := muster.ParseDuration(deadline)
			if err != nil {
				return nil, muster.Errorf(muster.KindUsage, "--deadline: %v", err)
			}
			request.HasDeadline, request.Deadline = true, int64(d)
		}
		request.RequestId, request.Nodes = newRequestID(), nodes
		return c.DrainNodes(ctx, request)
	})
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why, for everybody to see")
	cmd.Flags().StringVar(&deadline, "deadline", "", "after so long what still runs is asked to save itself and starts elsewhere; 0s: now")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "the nodes with this label, KEY=VALUE; several: with all of them")
	later(cmd, []string{"at"})
	named := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := refuseLater(cmd, []string{"at"}); err != nil {
			return err
		}
		if len(labels) > 0 { // they stand for nodes
			return usageArgs(cobra.NoArgs)(cmd, args)
		}
		return named(cmd, args)
	}
	return cmd
}

// nodesLabelled names the nodes that have all of the labels, at least one.
func nodesLabelled(ctx context.Context, client *rpc.Client, pairs []string) ([]string, error) {
	wanted, err := labelPairs(pairs)
	if err != nil {
		return nil, err
	}
	reply, err := client.ListNodes(ctx, &wire.ListNodesRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range reply.GetNodes() {
		has := map[string]string{}
		for _, l := range n.GetNode().GetLabels() {
			has[l.GetKey()] = l.GetValue()
		}
		all := true
		for _, l := range wanted {
			value, ok := has[l.GetKey()]
			all = all && ok && value == l.GetValue()
		}
		if all {
			names = append(names, n.GetNode().GetName())
		}
	}
	if len(names) == 0 {
		return nil, muster.Errorf(muster.KindNotFound, "no node has the label %s", strings.Join(pairs, " and "))
	}
	return names, nil
}

// labelPairs reads KEY=VALUE.
func labelPairs(pairs []string) ([]*wire.Label, error) {
	var labels []*wire.Label
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, muster.Errorf(muster.KindUsage, "-l %q is not KEY=VALUE", pair)
		}
		labels = append(labels, &wire.Label{Key: key, Value: value})
	}
	return labels, nil
}

func (a *app) nodeLabelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "label NODE KEY=VALUE… KEY-…", Short: "set labels over those of the agent's file; KEY- takes one back",
		Args: usageArgs(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := &wire.LabelNodeRequest{RequestId: newRequestID(), Node: args[0]}
			for _, arg := range args[1:] {
				key, value, set := strings.Cut(arg, "=")
				switch {
				case set:
					request.Set = append(request.Set, &wire.Label{Key: key, Value: value})
				case strings.HasSuffix(arg, "-"):
					request.Remove = append(request.Remove, strings.TrimSuffix(arg, "-"))
				default:
					return muster.Errorf(muster.KindUsage, "%q is neither KEY=VALUE, which sets a label, nor KEY-, which takes one back", arg)
				}
			}
			return a.ask(func(client *rpc.Client) (*wire.NotesReply, error) { return client.LabelNode(cmd.Context(), request) })
		},
	}
}

// setOver says of a label that it was set by an operator, and what it stands over.
func setOver(set []*wire.SetLabel, key string) string {
	for _, l := range set {
		switch {
		case l.GetKey() != key:
		case l.GetHasOwn():
			return fmt.Sprintf(" (set; the agent's file says %s)", l.GetOwn())
		default:
			return " (set)"
		}
	}
	return ""
}
