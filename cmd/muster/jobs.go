package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// jobRef reads how people name a job: a number, or a name.
func jobRef(text string) (*wire.JobRef, error) {
	if id, err := strconv.ParseUint(text, 10, 64); err == nil {
		return &wire.JobRef{Id: id}, nil
	}
	if strings.ContainsAny(text, "/_@") {
		return nil, muster.Errorf(muster.KindUsage, "%q names a rank, an element or an attempt; this verb takes whole jobs", text)
	}
	return &wire.JobRef{Name: text}, nil
}

func jobRefs(args []string) ([]*wire.JobRef, error) {
	var refs []*wire.JobRef
	for _, arg := range args {
		ref, err := jobRef(arg)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

func (a *app) psCommand() *cobra.Command {
	var all, ended, watch bool
	var user, queue, since, until string
	var states, labels []string
	cmd := &cobra.Command{
		Use: "ps", Short: "my jobs: live, and ended in the last hour", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all && user != "" {
				return muster.Errorf(muster.KindUsage, "-A is everybody's, and -u %s one user's: say one of them", user)
			}
			request := &wire.ListJobsRequest{Stale: a.global.stale, User: user, Queue: queue, States: states, Ended: ended, Waits: true}
			now := time.Now()
			if all {
				request.User = "*"
			}
			for _, state := range states {
				if _, ok := muster.ParseJobPhase(state); !ok {
					return muster.Errorf(muster.KindUsage, "there is no state %q", state).
						WithHint("One of: held, pending, preparing, running, stopping, succeeded, failed, cancelled")
				}
			}
			var err error
			if request.Labels, err = labelPairs(labels); err != nil {
				return err
			}
			if request.Since, err = moment(since, now); err != nil {
				return err
			}
			if request.Until, err = moment(until, now); err != nil {
				return err
			}
			return a.list(cmd.Context(), watch, func(ctx context.Context, client *rpc.Client) (listing, error) {
				return a.ps(ctx, client, request, time.Now())
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&all, "all-users", "A", false, "everybody's")
	flags.BoolVarP(&ended, "all", "a", false, "ended ones too, however old")
	flags.StringVarP(&user, "user", "u", "", "of this user")
	flags.StringVarP(&queue, "queue", "q", "", "in this queue")
	flags.StringSliceVarP(&states, "state", "s", nil, "in this state")
	flags.StringArrayVarP(&labels, "label", "l", nil, "with this label, KEY=VALUE")
	flags.StringVar(&since, "since", "", "submitted since: a duration ago, as in 2h, or an RFC 3339 time")
	flags.StringVar(&until, "until", "", "submitted before")
	a.outputFlags(cmd)
	watchFlag(cmd, &watch)
	return cmd
}

// moment reads "2h" (ago) or an RFC 3339 time as Unix milliseconds; "" is 0.
func moment(text string, now time.Time) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if d, err := muster.ParseDuration(text); err == nil {
		return now.Add(-d).UnixMilli(), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, muster.Errorf(muster.KindUsage, "%q is neither a duration ago, as in 2h, nor an RFC 3339 time", text)
	}
	return t.UnixMilli(), nil
}

func (a *app) ps(ctx context.Context, client *rpc.Client, request *wire.ListJobsRequest, now time.Time) (listing, error) {
	request.EndedSince = now.Add(-time.Hour).UnixMilli()
	var jobs []*wire.JobInfo
	for request.PageToken = ""; ; {
		reply, err := client.ListJobs(ctx, request)
		if err != nil {
			return listing{}, err
		}
		jobs = append(jobs, reply.GetJobs()...)
		if request.PageToken = reply.GetNextPageToken(); request.PageToken == "" {
			break
		}
	}
	l := listing{items: wire.JobsJSON(jobs)}
	for _, job := range jobs {
		l.names = append(l.names, muster.JobID(job.GetId()).String())
	}
	l.table = func() table {
		t := table{header: []string{"ID", "NAME", "USER", "QUEUE", "STATE", "GPUS", "SUBMITTED", "TIME", "WHERE"}, state: 4}
		for _, job := range jobs {
			t.rows = append(t.rows, []string{muster.JobID(job.GetId()).String(), job.GetName(), job.GetUser(), job.GetQueue(),
				job.GetState(), strconv.FormatInt(job.GetGpus(), 10), a.when(job.GetSubmittedAt(), now), ranFor(job, now), where(job)})
		}
		return t
	}
	return l, nil
}

// ranFor is how long a job ran, or has run; "-" before it did.
func ranFor(job *wire.JobInfo, now time.Time) string {
	if job.GetStartedAt() == 0 {
		return "-"
	}
	end := now.UnixMilli()
	if job.GetFinishedAt() != 0 {
		end = job.GetFinishedAt()
	}
	return short(time.Duration(max(0, end-job.GetStartedAt())) * time.Millisecond)
}

// where is the nodes of a placed job, else why it is where it is; of a pending one with its place in the order.
func where(job *wire.JobInfo) string {
	if job.GetWaits() != "" {
		if job.GetOf() > 1 {
			return fmt.Sprintf("%d of %d: %s", job.GetPosition(), job.GetOf(), job.GetWaits())
		}
		return job.GetWaits()
	}
	if job.GetReason() != "" {
		return job.GetReason()
	}
	return strings.Join(nodesOf(job), " ")
}

func (a *app) cancelCommand() *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use: "cancel JOB…", Short: "ask jobs to stop: the request, the grace, the kill", Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseLater(cmd, []string{"signal"}); err != nil {
				return err
			}
			refs, err := jobRefs(args)
			if err != nil {
				return err
			}
			return a.ask(func(client *rpc.Client) (*wire.NotesReply, error) {
				return client.Cancel(cmd.Context(), &wire.CancelRequest{RequestId: newRequestID(), Jobs: refs, Now: now})
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "kill at once, without asking")
	cmd.Flags().BoolP("yes", "y", false, "don't ask (nothing is asked yet)")
	later(cmd, []string{"signal"})
	return cmd
}

// ask makes one request and says what the servers note of it.
func (a *app) ask(request func(*rpc.Client) (*wire.NotesReply, error)) error {
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	reply, err := request(client)
	if err != nil {
		return err
	}
	for _, note := range reply.GetNotes() {
		if _, err := fmt.Fprintln(a.io.err, note); err != nil {
			return err
		}
	}
	return nil
}

// waitFor are the moments that `wait --for` knows.
var waitFor = map[string]func(*wire.JobInfo) bool{
	"started":  func(i *wire.JobInfo) bool { return i.GetStartedAt() != 0 || over(i) },
	"finished": over, "succeeded": over, "failed": over,
}

func (a *app) waitCommand() *cobra.Command {
	var until, timeout string
	var any bool
	cmd := &cobra.Command{
		Use: "wait JOB…", Short: "wait until jobs have ended; exits with the code of the first that failed",
		Args: usageArgs(cobra.MinimumNArgs(1)), Annotations: map[string]string{carriesCode: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			done, ok := waitFor[until]
			if !ok {
				return muster.Errorf(muster.KindUsage, "--for %q: one of started, succeeded, failed, finished", until)
			}
			limit, err := optional(timeout, muster.ParseDuration)
			if err != nil {
				return muster.Errorf(muster.KindUsage, "--timeout: %v", err)
			}
			refs, err := jobRefs(args)
			if err != nil {
				return err
			}
			return a.wait(cmd.Context(), refs, until, done, any, limit)
		},
	}
	cmd.Flags().StringVar(&until, "for", "finished", "started, succeeded, failed or finished")
	cmd.Flags().BoolVar(&any, "any", false, "one of them is enough")
	cmd.Flags().StringVar(&timeout, "timeout", "", "give up after so long, with code 124")
	a.outputFlags(cmd)
	return cmd
}

func (a *app) wait(ctx context.Context, refs []*wire.JobRef, until string, done func(*wire.JobInfo) bool, any bool, limit time.Duration) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	if limit > 0 {
		timed, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = timed
	}
	infos, err := awaitNamed(ctx, client.Patiently(), refs, any, done)
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		fmt.Fprintf(a.io.err, "muster: not so after %s\n", muster.FormatDuration(limit))
		return exitCode(exitTimeout)
	case ctx.Err() != nil:
		return exitCode(exitDetached)
	case err != nil:
		return err
	}
	code := 0
	for _, info := range infos {
		c, sentence := outcome(info)
		switch {
		case until == "failed" && info.GetState() == muster.JobSucceeded.String():
			c, sentence = 1, fmt.Sprintf("%s (%d) succeeded, and so never failed", info.GetName(), info.GetId())
		case until == "failed", until == "started" && info.GetStartedAt() != 0:
			c = 0
		}
		if c != 0 {
			fmt.Fprintln(a.io.err, sentence)
		}
		if code == 0 {
			code = c
		}
	}
	if err := a.printWaited(infos); err != nil {
		return err
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// awaitNamed awaits jobs as people name them. A name is resolved once: it must not come to mean a newer job on the way. One
// that is named twice is one.
func awaitNamed(ctx context.Context, client *rpc.Client, named []*wire.JobRef, any bool, done func(*wire.JobInfo) bool) ([]*wire.JobInfo, error) {
	var ids []uint64
	for _, ref := range named {
		info, err := client.GetJob(ctx, &wire.GetJobRequest{Job: ref})
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, info.GetId()) {
			ids = append(ids, info.GetId())
		}
	}
	return await(ctx, client, refsOf(ids), any, done, nil)
}

// printWaited prints what was waited for where a form was asked for.
func (a *app) printWaited(infos []*wire.JobInfo) error {
	if a.global.output == "" && !a.global.json {
		return nil
	}
	l := listing{items: wire.JobsJSON(infos), table: func() table { return table{} }}
	for _, info := range infos {
		l.names = append(l.names, muster.JobID(info.GetId()).String())
	}
	return a.print(l)
}
