package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// secondInterrupt is how soon a second Ctrl-C must follow the first to cancel what was detached from.
const secondInterrupt = 2 * time.Second

// follow stays with jobs until they are over: states on stderr, the logs of a single one (withLogs), then the exit code of the
// first that failed, in the order of the file. Ctrl-C detaches, a second one cancels.
func (a *app) follow(ctx context.Context, client *rpc.Client, refs []*wire.JobRef, withLogs bool) error {
	interrupted := make(chan os.Signal, 2)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	ctx, detach := context.WithCancel(ctx)
	defer detach()

	type end struct {
		infos []*wire.JobInfo
		err   error
	}
	ended := make(chan end, 1)
	go func() {
		infos, err := a.attach(ctx, client, refs, withLogs)
		ended <- end{infos, err}
	}()
	select {
	case e := <-ended:
		if e.err != nil {
			return e.err
		}
		return a.verdict(ctx, client, e.infos, withLogs)
	case <-interrupted:
		detach()
		<-ended
		return a.detached(client, refs, interrupted)
	}
}

// attach runs the state line and the logs side by side. The logs' end is waited for: all lines stand before the verdict.
func (a *app) attach(ctx context.Context, client *rpc.Client, refs []*wire.JobRef, withLogs bool) ([]*wire.JobInfo, error) {
	var logs sync.WaitGroup
	var logErr error
	line := newStateLine(a, client, refs)
	var waiting sync.WaitGroup
	ctxWaits, stopWaits := context.WithCancel(ctx)
	waiting.Go(func() { line.sayWaits(ctxWaits) })
	defer func() { stopWaits(); waiting.Wait() }()
	ctxLogs, stopLogs := context.WithCancel(ctx)
	defer func() { stopLogs(); logs.Wait() }()
	started := false
	infos, err := await(ctx, client, refs, false, over, func(info *wire.JobInfo) {
		line.show(info)
		if withLogs && !started {
			started = true
			logs.Go(func() { logErr = a.copyLogs(ctxLogs, client, info) })
		}
	})
	if err != nil {
		return nil, err
	}
	if withLogs && len(infos) == 1 && infos[0].GetState() == muster.JobHeld.String() {
		stopLogs() // a held job's log never ends
	}
	logs.Wait()
	if logErr != nil && ctxLogs.Err() == nil {
		return nil, logErr
	}
	return infos, nil
}

func (a *app) copyLogs(ctx context.Context, client *rpc.Client, info *wire.JobInfo) error {
	printer := newLogPrinter(a.io, info, false, false)
	return client.FollowLogs(ctx, &wire.LogsRequest{Job: &wire.JobRef{Id: info.GetId()}, Follow: true}, printer.chunk)
}

// verdict says how the jobs ended and gives the code of the first that failed.
func (a *app) verdict(ctx context.Context, client *rpc.Client, infos []*wire.JobInfo, withLogs bool) error {
	first := 0
	for _, info := range infos {
		code, sentence := outcome(info)
		if code != 0 && !withLogs && len(infos) > 1 {
			a.failedOutput(ctx, client, info)
		}
		if code != 0 || len(infos) == 1 && width(a.io.err) > 0 {
			fmt.Fprintf(a.io.err, "-- %s --\n", sentence)
		}
		if first == 0 {
			first = code
		}
	}
	if len(infos) > 1 {
		fmt.Fprintf(a.io.err, "-- %s --\n", verdictSum(infos))
	}
	if first != 0 {
		return exitCode(first)
	}
	return nil
}

// verdictSum counts jobs that are over by how they ended: "3 jobs: 1 succeeded, 2 failed".
func verdictSum(infos []*wire.JobInfo) string {
	states := map[string]int{}
	for _, info := range infos {
		states[info.GetState()]++
	}
	return sumOf(len(infos), states)
}

// failedOutput prints the stderr of the ranks that failed; that it can't be had is said, and changes nothing.
func (a *app) failedOutput(ctx context.Context, client *rpc.Client, info *wire.JobInfo) {
	printer := newLogPrinter(a.io, info, false, true)
	request := &wire.LogsRequest{Job: &wire.JobRef{Id: info.GetId()}, Failed: true, LastLines: 100, Attempt: info.GetAttempt()}
	if err := client.FollowLogs(ctx, request, printer.chunk); err != nil {
		fmt.Fprintf(a.io.err, "-- the output of %d could not be read: %v --\n", info.GetId(), err)
	}
}

// detached is what a Ctrl-C leaves: the jobs go on, unless a second one follows.
func (a *app) detached(client *rpc.Client, refs []*wire.JobRef, interrupted <-chan os.Signal) error {
	var ids []string
	for _, ref := range refs {
		ids = append(ids, muster.JobID(ref.GetId()).String())
	}
	list := strings.Join(ids, " ")
	fmt.Fprintf(a.io.err, "-- detached: %s goes on (muster logs -f %s); Ctrl-C again within 2 s cancels it --\n", list, ids[0])
	timer := time.NewTimer(secondInterrupt)
	defer timer.Stop()
	select {
	case <-timer.C:
		return exitCode(exitDetached)
	case <-interrupted:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	reply, err := client.Cancel(ctx, &wire.CancelRequest{RequestId: newRequestID(), Jobs: refs})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.io.err, "-- cancelled %s --\n", list)
	for _, note := range reply.GetNotes() {
		fmt.Fprintln(a.io.err, note)
	}
	return exitCode(exitCancelled)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// nodesOf lists the nodes of a job's ranks, each once, in rank order.
func nodesOf(info *wire.JobInfo) []string {
	var nodes []string
	seen := map[string]bool{}
	for _, rank := range info.GetRanks() {
		if node := rank.GetNode(); node != "" && !seen[node] {
			seen[node] = true
			nodes = append(nodes, node)
		}
	}
	return nodes
}
