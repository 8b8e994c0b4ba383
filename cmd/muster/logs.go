package main

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

func (a *app) logsCommand() *cobra.Command {
	var follow, stderr, noPrefix bool
	var lines int64
	var since, ranks string
	var attempt uint32
	cmd := &cobra.Command{
		Use: "logs JOB[/RANK][@ATTEMPT]", Short: "what a job's ranks have printed", Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := &wire.LogsRequest{Follow: follow, LastLines: lines, Attempt: attempt}
			if lines < 0 {
				return muster.Errorf(muster.KindUsage, "-n %d is no number of lines", lines)
			}
			err := selectRanks(request, ranks)
			if err != nil {
				return err
			}
			if err := nameRank(request, args[0]); err != nil {
				return err
			}
			if request.Since, err = moment(since, time.Now()); err != nil {
				return err
			}
			return a.logs(cmd.Context(), request, noPrefix, stderr)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "wait for the start, end with the job")
	flags.Int64VarP(&lines, "lines", "n", 0, "only the last so many lines of each rank")
	flags.StringVar(&since, "since", "", "since a duration ago, as in 10m, or an RFC 3339 time")
	flags.StringVar(&ranks, "rank", "all", "0,7 or all or failed")
	flags.Uint32Var(&attempt, "attempt", 0, "of this attempt; 0: all")
	flags.BoolVar(&stderr, "stderr", false, "only stderr")
	flags.BoolVar(&noPrefix, "no-prefix", false, "no [rank@node] before the lines")
	flags.BoolVar(&a.global.stale, "stale", false, "answer from any server's own state")
	return cmd
}

// nameRank reads JOB, JOB/RANK or JOB/GROUP/RANK, each with @ATTEMPT behind it or without.
func nameRank(request *wire.LogsRequest, text string) (err error) {
	job, attempt, named := strings.Cut(text, "@")
	if named {
		n, err := strconv.ParseUint(attempt, 10, 32)
		if err != nil || n == 0 {
			return muster.Errorf(muster.KindUsage, "%q: attempts count from 1, as in train@2", text)
		}
		request.Attempt = uint32(n)
	}
	if slash := strings.LastIndexByte(job, '/'); slash >= 0 {
		rank, err := strconv.ParseInt(job[slash+1:], 10, 32)
		if err != nil || rank < 0 || len(request.Ranks) > 0 || request.Failed {
			return muster.Errorf(muster.KindUsage, "%q: a rank is a number behind the job's name, as in train/3, and then there is no --rank", text)
		}
		request.Ranks = []int64{rank}
		job, request.Group, _ = strings.Cut(job[:slash], "/")
	}
	request.Job, err = jobRef(job)
	return err
}

// selectRanks reads --rank: a list of numbers, all, or failed.
func selectRanks(request *wire.LogsRequest, text string) error {
	switch text {
	case "all":
		return nil
	case "failed":
		request.Failed = true
		return nil
	}
	for _, word := range strings.Split(text, ",") {
		rank, err := strconv.ParseInt(word, 10, 32)
		if err != nil || rank < 0 {
			return muster.Errorf(muster.KindUsage, "--rank %q: a list of numbers as in 0,7, or all, or failed", text)
		}
		request.Ranks = append(request.Ranks, rank)
	}
	return nil
}

func (a *app) logs(ctx context.Context, request *wire.LogsRequest, noPrefix, stderrOnly bool) error {
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	info, err := client.GetJob(ctx, &wire.GetJobRequest{Job: request.GetJob(), Stale: a.global.stale})
	if err != nil {
		return err
	}
	request.Job = &wire.JobRef{Id: info.GetId()} // a name must not come to mean a newer job on the way
	if request.GetFollow() {
		client = client.Patiently()
	}
	printer := newLogPrinter(a.io, info, noPrefix, stderrOnly)
	interrupted := make(chan os.Signal, 2)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	ended := make(chan error, 1)
	go func() { ended <- client.FollowLogs(ctx, request, printer.chunk) }()
	select {
	case err := <-ended:
		return err
	case <-interrupted:
	}
	leave()
	<-ended
	if !request.GetFollow() {
		return exitCode(exitDetached)
	}
	return a.detached(client, []*wire.JobRef{request.Job}, interrupted)
}
