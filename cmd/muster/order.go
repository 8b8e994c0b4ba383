package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// jobVerb is a verb that asks for one thing about jobs.
func (a *app) jobVerb(use, short string, ask func(context.Context, *rpc.Client, []*wire.JobRef) (*wire.NotesReply, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			refs, err := jobRefs(args)
			if err != nil {
				return err
			}
			return a.ask(func(client *rpc.Client) (*wire.NotesReply, error) { return ask(cmd.Context(), client, refs) })
		},
	}
}

func (a *app) holdCommand() *cobra.Command {
	return a.jobVerb("hold JOB…", "keep jobs that wait from starting", func(ctx context.Context, c *rpc.Client, jobs []*wire.JobRef) (*wire.NotesReply, error) {
		return c.Hold(ctx, &wire.HoldRequest{RequestId: newRequestID(), Jobs: jobs})
	})
}

func (a *app) releaseCommand() *cobra.Command {
	return a.jobVerb("release JOB…", "let held jobs go on", func(ctx context.Context, c *rpc.Client, jobs []*wire.JobRef) (*wire.NotesReply, error) {
		return c.Release(ctx, &wire.ReleaseRequest{RequestId: newRequestID(), Jobs: jobs})
	})
}

func (a *app) requeueCommand() *cobra.Command {
	return a.jobVerb("requeue JOB…", "let jobs save themselves, and start again at their old place in the queue",
		func(ctx context.Context, c *rpc.Client, jobs []*wire.JobRef) (*wire.NotesReply, error) {
			return c.Requeue(ctx, &wire.RequeueRequest{RequestId: newRequestID(), Jobs: jobs})
		})
}

func (a *app) priorityCommand() *cobra.Command {
	return &cobra.Command{
		Use: "priority JOB N", Short: "where a job stands in its queue: 0 to 100, the highest first", Args: usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := jobRef(args[0])
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 0 || n > muster.MaxPriority {
				return muster.Errorf(muster.KindUsage, "priority %q is not a number from 0 to %d", args[1], muster.MaxPriority)
			}
			return a.ask(func(client *rpc.Client) (*wire.NotesReply, error) {
				return client.SetPriority(cmd.Context(), &wire.SetPriorityRequest{
					RequestId: newRequestID(), Jobs: []*wire.JobRef{ref}, Priority: int64(n)})
			})
		},
	}
}

func (a *app) rerunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rerun JOB", Short: "submit a new job of the same spec; print its number", Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseLater(cmd, []string{"failed"}); err != nil {
				return err
			}
			ref, err := jobRef(args[0])
			if err != nil {
				return err
			}
			return a.rerun(cmd.Context(), ref)
		},
	}
	laterSwitch(cmd, []string{"failed"})
	a.formFlags(cmd)
	return cmd
}

func (a *app) rerun(ctx context.Context, ref *wire.JobRef) error {
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	job, err := client.GetJob(ctx, &wire.GetJobRequest{Job: ref, Spec: true})
	if err != nil {
		return err
	}
	reply, err := client.Submit(ctx, &wire.SubmitRequest{RequestId: newRequestID(), Specs: []*wire.JobSpec{job.GetSpec()}})
	if err != nil {
		return err
	}
	return a.printSubmitted(reply, []string{job.GetName()})
}

// printSubmitted prints the numbers of new jobs, one a line, or as was asked for.
func (a *app) printSubmitted(reply *wire.SubmitReply, names []string) error {
	for _, note := range reply.GetNotes() {
		fmt.Fprintln(a.io.err, note)
	}
	made := make([]wire.SubmittedJSON, len(reply.GetIds()))
	var l listing
	for i, id := range reply.GetIds() {
		made[i] = wire.SubmittedJSON{ID: id, Name: names[i]}
		l.names = append(l.names, muster.JobID(id).String())
	}
	l.items = made
	l.text = func() error {
		for _, id := range l.names {
			if _, err := fmt.Fprintln(a.io.out, id); err != nil {
				return err
			}
		}
		return nil
	}
	return a.print(l)
}
