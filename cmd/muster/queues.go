package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/queuefile"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

func (a *app) queueCommand() *cobra.Command {
	return group("queue", "queues: ls, show, apply", a.queueListCommand(), a.queueShowCommand(), a.queueApplyCommand())
}

func (a *app) queueListCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: "ls", Short: "the tree: quota, weight, limit, and what is used", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.list(cmd.Context(), watch, func(ctx context.Context, client *rpc.Client) (listing, error) {
				reply, err := client.ListQueues(ctx, &wire.ListQueuesRequest{Stale: a.global.stale})
				if err != nil {
					return listing{}, err
				}
				return a.queueListing(reply.GetQueues())
			})
		},
	}
	a.outputFlags(cmd)
	watchFlag(cmd, &watch)
	return cmd
}

func (a *app) queueListing(queues []*wire.QueueInfo) (listing, error) {
	items, err := wire.QueuesJSON(queues)
	if err != nil {
		return listing{}, err
	}
	l := listing{items: items}
	for i := range items {
		l.names = append(l.names, items[i].Name)
	}
	l.table = func() table {
		t := table{header: []string{"QUEUE", "QUOTA", "WEIGHT", "LIMIT", "USED", "RUNNING", "PENDING", "NOTE"}, state: -1}
		for i := range items {
			q := &items[i]
			name := q.Name
			if width(a.io.out) > 0 { // as a tree
				depth := strings.Count(name, "/")
				name = strings.Repeat("  ", depth) + name[strings.LastIndexByte(name, '/')+1:]
			}
			t.rows = append(t.rows, []string{name, quotaText(q), number(q.Weight), orDash(q.MaxGPUs), number(q.HeldGPUs),
				strconv.FormatInt(q.Running, 10), strconv.FormatInt(q.Pending, 10), queueNote(q)})
		}
		return t
	}
	return l, nil
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func orDash(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func quotaText(q *wire.QueueJSON) string {
	if len(q.GPUs) == 0 {
		return "-"
	}
	var words []string
	for model, n := range q.GPUs {
		if model == "any" {
			words = append(words, strconv.FormatInt(n, 10))
		} else {
			words = append(words, fmt.Sprintf("%d %s", n, model))
		}
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// queueNote says what is out of the ordinary: what was lowered below its use goes on.
func queueNote(q *wire.QueueJSON) string {
	switch {
	case q.MaxGPUs > 0 && q.HeldGPUs > float64(q.MaxGPUs):
		return "over its limit: new work waits"
	case q.MaxGPUs > 0 && q.HeldGPUs == float64(q.MaxGPUs):
		return "at its limit"
	case q.MaxRunning > 0 && q.Running >= q.MaxRunning:
		return fmt.Sprintf("at %d of %d running jobs", q.Running, q.MaxRunning)
	}
	return ""
}

func (a *app) queueShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [QUEUE]", Short: "a queue's rules, who uses it, and what waits there in order; -o hcl: the whole file",
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.global.output == "hcl" {
				return a.writeQueues(cmd.Context())
			}
			queue := muster.DefaultQueue
			if len(args) > 0 {
				queue = args[0]
			}
			return a.list(cmd.Context(), false, func(ctx context.Context, client *rpc.Client) (listing, error) {
				return a.showQueue(ctx, client, queue)
			})
		},
	}
	a.outputFlags(cmd)
	return cmd
}

// writeQueues prints the file that, applied, changes nothing.
func (a *app) writeQueues(ctx context.Context) error {
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	now, _, err := presentQueues(ctx, client, a.global.stale)
	if err != nil {
		return err
	}
	_, err = a.io.out.Write(queuefile.Write(now.Queues, now.Policy))
	return err
}

// presentQueues gives the tree and the policy as a file has them.
func presentQueues(ctx context.Context, client *rpc.Client, stale bool) (*queuefile.File, []*wire.QueueInfo, error) {
	reply, err := client.ListQueues(ctx, &wire.ListQueuesRequest{Stale: stale})
	if err != nil {
		return nil, nil, err
	}
	file := &queuefile.File{}
	for _, x := range reply.GetQueues() {
		q, err := x.GetSpec().Domain()
		if err != nil {
			return nil, nil, err
		}
		file.Queues = append(file.Queues, q)
	}
	file.Policy, err = reply.GetPolicy().Domain()
	return file, reply.GetQueues(), err
}

func (a *app) showQueue(ctx context.Context, client *rpc.Client, name string) (listing, error) {
	reply, err := client.ListQueues(ctx, &wire.ListQueuesRequest{Stale: a.global.stale})
	if err != nil {
		return listing{}, err
	}
	at := slices.IndexFunc(reply.GetQueues(), func(x *wire.QueueInfo) bool { return x.GetSpec().GetName() == name })
	if at < 0 {
		return listing{}, muster.Errorf(muster.KindNotFound, "there is no queue %q", name).WithHint("muster queue ls shows those that are")
	}
	l, err := a.queueListing(reply.GetQueues()[at : at+1])
	if err != nil {
		return listing{}, err
	}
	waiting, err := client.ListJobs(ctx, &wire.ListJobsRequest{Stale: a.global.stale, User: "*", Queue: name, States: []string{"pending"}, Waits: true})
	if err != nil {
		return listing{}, err
	}
	jobs := waiting.GetJobs()
	slices.SortFunc(jobs, func(a, b *wire.JobInfo) int { // those of which nobody knows the place last
		if (a.GetPosition() == 0) != (b.GetPosition() == 0) {
			return int(b.GetPosition() - a.GetPosition())
		}
		if a.GetPosition() != b.GetPosition() {
			return int(a.GetPosition() - b.GetPosition())
		}
		return int(a.GetId()) - int(b.GetId())
	})
	q := l.items.([]wire.QueueJSON)[0]
	spec, err := reply.GetQueues()[at].GetSpec().Domain()
	if err != nil {
		return listing{}, err
	}
	l.table, l.text = nil, func() error { return a.printQueue(&q, spec, jobs) }
	return l, nil
}

func (a *app) printQueue(q *wire.QueueJSON, spec muster.QueueSpec, jobs []*wire.JobInfo) error {
	w := bufio.NewWriter(a.io.out)
	fmt.Fprintf(w, "Queue    %s\n", q.Name)
	limit := ""
	if q.MaxGPUs > 0 {
		limit = fmt.Sprintf(" of %d", q.MaxGPUs)
	}
	fmt.Fprintf(w, "GPUs     %s%s held, quota %s, weight %s\n", number(q.HeldGPUs), limit, quotaText(q), number(q.Weight))
	fmt.Fprintf(w, "Jobs     %d running, %d pending\n", q.Running, q.Pending)
	usual := muster.NewQueueSpec(q.Name)
	for _, c := range queuefile.Diff(&queuefile.File{Queues: []muster.QueueSpec{usual}, Policy: muster.DefaultPolicy()},
		&queuefile.File{Queues: []muster.QueueSpec{spec}, Policy: muster.DefaultPolicy()}) {
		fmt.Fprintf(w, "Rule     %s %s\n", c.Attribute, c.New)
	}
	for _, u := range q.Users {
		fmt.Fprintf(w, "User     %s holds %s\n", u.User, number(u.HeldGPUs))
	}
	for i, j := range jobs {
		fmt.Fprintf(w, "Waits    %d. %s (%d of %s), priority %d, %d GPUs: %s\n", i+1, j.GetName(), j.GetId(), j.GetUser(), j.GetPriority(), j.GetGpus(), j.GetWaits())
	}
	return w.Flush()
}
