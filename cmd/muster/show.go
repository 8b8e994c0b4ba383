package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// laterShowFlags are of the contract, and not built yet.
var laterShowFlags = []string{"env", "graph"}

func (a *app) showCommand() *cobra.Command {
	var spec bool
	cmd := &cobra.Command{
		Use: "show JOB", Short: "everything about a job: spec, attempts, ranks and their GPUs", Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseLater(cmd, laterShowFlags); err != nil {
				return err
			}
			ref, err := jobRef(args[0])
			if err != nil {
				return err
			}
			client, err := a.dial()
			if err != nil {
				return err
			}
			defer client.Close()
			info, err := client.GetJob(cmd.Context(), &wire.GetJobRequest{Job: ref, Stale: a.global.stale, Spec: true, Waits: true})
			if err != nil {
				return err
			}
			l := listing{items: wire.JobsJSON([]*wire.JobInfo{info}), names: []string{muster.JobID(info.GetId()).String()}}
			l.text = func() error { return a.showText(info) }
			if spec {
				body, err := wire.SpecsJSON(info.GetSpec())
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(a.io.out, string(body))
				return err
			}
			return a.print(l)
		},
	}
	cmd.Flags().BoolVar(&spec, "spec", false, "only the spec, as POST /v1/jobs takes it")
	laterSwitch(cmd, laterShowFlags)
	a.outputFlags(cmd)
	return cmd
}

func (a *app) showText(info *wire.JobInfo) error {
	now := time.Now()
	w := a.io.out
	fmt.Fprintf(w, "%s (%d) %s%s\n", info.GetName(), info.GetId(), strings.ToUpper(info.GetState()), because(cmp.Or(info.GetWaits(), info.GetReason())))
	field := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-11s%s\n", name, fmt.Sprintf(format, args...))
	}
	field("User", "%s", info.GetUser())
	field("Queue", "%s, priority %d", info.GetQueue(), info.GetPriority())
	field("Needs", "%s, %s", count(int(info.GetRankCount()), "rank"), count(int(info.GetGpus()), "GPU"))
	if limit := info.GetTimeLimit(); limit > 0 {
		field("Limit", "%s", muster.FormatDuration(time.Duration(limit)))
	}
	for _, label := range info.GetLabels() {
		field("Label", "%s = %s", label.GetKey(), label.GetValue())
	}
	field("Submitted", "%s", a.when(info.GetSubmittedAt(), now))
	if info.GetStartedAt() != 0 {
		field("Started", "%s", a.when(info.GetStartedAt(), now))
	}
	if info.GetFinishedAt() != 0 {
		field("Finished", "%s", a.when(info.GetFinishedAt(), now))
	}
	if info.GetHasExitCode() {
		field("Exit code", "%d", info.GetExitCode())
	}
	if err := a.showTasks(w, info.GetSpec()); err != nil {
		return err
	}
	if len(info.GetAttempts()) > 0 {
		fmt.Fprintln(w, "\nAttempts")
	}
	for _, attempt := range info.GetAttempts() {
		fmt.Fprintf(w, "  @%d  placed %s  %s\n", attempt.GetNumber(), a.when(attempt.GetPlaced(), now), attemptEnd(attempt))
	}
	ranks := append(info.GetEarlierRanks(), info.GetRanks()...)
	if len(ranks) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nRanks")
	t := table{header: []string{"RANK", "STATE", "NODE", "GPUS", "EXIT", "CLASS", "MESSAGE"}, state: 1}
	for _, rank := range ranks {
		exit := "-"
		if rank.GetHasExitCode() {
			exit = fmt.Sprint(rank.GetExitCode())
		}
		name := fmt.Sprintf("%d@%d", rank.GetRank(), rank.GetAttempt())
		if len(info.GetSpec().GetGroups()) > 1 {
			name = rank.GetGroup() + "/" + name
		}
		t.rows = append(t.rows, []string{name, rank.GetState(),
			rank.GetNode(), indices(rank.GetGpuIndices()), exit, rank.GetClass(), rank.GetMessage()})
	}
	return t.print(w)
}

func (a *app) showTasks(w io.Writer, spec *wire.JobSpec) error {
	for _, group := range spec.GetGroups() {
		task := group.GetTask()
		what := task.GetCommand() + " " + strings.Join(task.GetArgs(), " ")
		if script := strings.TrimSpace(task.GetScript()); script != "" {
			first, _, more := strings.Cut(script, "\n")
			if what = first; more {
				what += " …"
			}
		}
		if _, err := fmt.Fprintf(w, "%-11s%s: %s\n", "Task", task.GetName(), strings.TrimSpace(what)); err != nil {
			return err
		}
	}
	return nil
}

func attemptEnd(attempt *wire.Attempt) string {
	if attempt.GetEnded() == 0 {
		return "lives: " + count(int(attempt.GetLive()), "rank")
	}
	class := muster.Class(attempt.GetClass()).String()
	if class == "" {
		class = "succeeded"
	}
	lasted := time.Duration(attempt.GetEnded()-attempt.GetPlaced()) * time.Millisecond
	return fmt.Sprintf("ended after %s: %s%s", short(lasted), class, because(attempt.GetReason()))
}

func indices(list []int64) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

func (a *app) whyCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: "why JOB", Short: "why a job waits, was preempted or failed, in numbers", Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return muster.Errorf(muster.KindUsage, "muster why without a job is not supported yet").WithHint("Say: muster why JOB")
			}
			ref, err := jobRef(args[0])
			if err != nil {
				return err
			}
			return a.list(cmd.Context(), watch, func(ctx context.Context, client *rpc.Client) (listing, error) {
				reply, err := client.Why(ctx, &wire.WhyRequest{Job: ref, Stale: a.global.stale})
				if err != nil {
					return listing{}, err
				}
				ref = &wire.JobRef{Id: reply.GetJob().GetId()} // a name must not come to mean another job while it is watched
				l := listing{items: wire.WhyJSONOf(reply), names: []string{muster.JobID(reply.GetJob().GetId()).String()}}
				l.text = func() error {
					if err := a.whyText(reply); err != nil {
						return err
					}
					return a.lastWords(ctx, client, reply.GetJob())
				}
				return l, nil
			})
		},
	}
	a.outputFlags(cmd)
	watchFlag(cmd, &watch)
	return cmd
}

func (a *app) whyText(why *wire.WhyReply) error {
	w, job := a.io.out, why.GetJob()
	head := fmt.Sprintf("%s (%d) %s", job.GetName(), job.GetId(), strings.ToUpper(job.GetState()))
	if since := time.Since(time.UnixMilli(job.GetSubmittedAt())); job.GetFinishedAt() == 0 {
		head += " " + short(since)
	}
	if why.GetPosition() > 0 {
		head += fmt.Sprintf(" · position %d of %d", why.GetPosition(), why.GetOf())
	}
	fmt.Fprintf(w, "%s · queue %s\n", head, job.GetQueue())
	if job.GetReason() != "" {
		fmt.Fprintf(w, "%-11s%s\n", "Reason", job.GetReason())
	}
	if why.GetHeadline() != "" {
		fmt.Fprintf(w, "%-11s%s\n", "Capacity", why.GetHeadline())
	}
	kind := 11
	for _, r := range why.GetReasons() {
		kind = max(kind, len(r.GetKind())+1)
	}
	for _, never := range []bool{false, true} {
		for _, r := range why.GetReasons() {
			if r.GetNever() != never {
				continue
			}
			unit, mark := "nodes", ""
			if r.GetCount() == 1 {
				unit = "node "
			}
			if never {
				mark = "never: "
			}
			fmt.Fprintf(w, "  %-*s%3d %s  %s  %s%s\n", kind, r.GetKind(), r.GetCount(), unit, nodeList(r), mark, r.GetDetail())
		}
	}
	if why.GetAheadCount() > 0 {
		var names []string
		for _, ref := range why.GetAhead() {
			names = append(names, fmt.Sprintf("%s (%d)", ref.GetName(), ref.GetId()))
		}
		if more := why.GetAheadCount() - int64(len(names)); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		fmt.Fprintf(w, "%-11s%s\n", "Ahead", strings.Join(names, ", "))
	}
	if after := collateral(job); len(after) > 0 {
		fmt.Fprintf(w, "%-11s%s stopped because of it: %s\n", "After it", count(len(after), "rank"), some(after))
	}
	if note := why.GetNote(); note != "" && (job.GetReason() == "" || !strings.HasSuffix(note, job.GetReason())) {
		fmt.Fprintf(w, "%-11s%s\n", "Note", why.GetNote())
	}
	return nil
}

// lastLines is how much of a failed rank's stderr why shows.
const lastLines = 10

// lastWords shows the last lines of stderr of the ranks that a job failed by. That they can't be had is no error: the reason
// stands without them.
func (a *app) lastWords(ctx context.Context, client *rpc.Client, job *wire.JobInfo) error {
	if job.GetState() != muster.JobFailed.String() && job.GetState() != muster.JobHeld.String() || len(job.GetRanks()) == 0 {
		return nil
	}
	var words bytes.Buffer
	printer := newLogPrinter(streams{out: io.Discard, err: &words}, job, false, true)
	request := &wire.LogsRequest{Job: &wire.JobRef{Id: job.GetId()}, Failed: true, LastLines: lastLines, Attempt: job.GetAttempt()}
	if err := client.FollowLogs(ctx, request, printer.chunk); err != nil || words.Len() == 0 {
		return nil
	}
	_, err := fmt.Fprintf(a.io.out, "Last lines of stderr\n%s", words.Bytes())
	return err
}

// collateral names the ranks that were stopped because another failed.
func collateral(job *wire.JobInfo) []string {
	var out []string
	for _, rank := range job.GetRanks() {
		if rank.GetClass() == muster.ClassCollateral.String() {
			out = append(out, fmt.Sprintf("%d on %s", rank.GetRank(), rank.GetNode()))
		}
	}
	return out
}

// some joins the first few.
func some(list []string) string {
	if len(list) <= 4 {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:3], ", "), len(list)-3)
}

// nodeList names nodes, all of them or the first few and the last.
func nodeList(r *wire.WhyReason) string {
	nodes := r.GetNodes()
	if len(nodes) > 4 || r.GetCount() > int64(len(nodes)) {
		return fmt.Sprintf("%s…%s", nodes[0], nodes[len(nodes)-1])
	}
	return strings.Join(nodes, " ")
}
