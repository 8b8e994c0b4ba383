package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// logPrinter writes the chunks of a job's logs: stdout to out, stderr to err, a prefix before each line when the job has
// several ranks. Lines of different ranks are never mixed: with a prefix, an unfinished line waits for its end.
type logPrinter struct {
	out, err   io.Writer
	prefix     bool
	stderrOnly bool

	mu      sync.Mutex
	partial map[partialKey][]byte
}

type partialKey struct {
	alloc  muster.AllocID
	stderr bool
}

func newLogPrinter(io streams, info *wire.JobInfo, noPrefix, stderrOnly bool) *logPrinter {
	return &logPrinter{out: io.out, err: io.err, prefix: !noPrefix && info.GetRankCount() > 1, stderrOnly: stderrOnly,
		partial: map[partialKey][]byte{}}
}

func (p *logPrinter) chunk(c *wire.LogChunk) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.GetNote() != "":
		fmt.Fprintf(p.err, "-- %s --\n", c.GetNote())
	case c.GetLost() > 0:
		fmt.Fprintf(p.err, "-- %s of rank %d's older output are gone: its logs block keeps less --\n",
			muster.Bytes(c.GetLost()).Human(), c.GetRank())
	}
	if p.stderrOnly && !c.GetStderr() && !c.GetEnd() {
		return nil
	}
	w := p.out
	if c.GetStderr() {
		w = p.err
	}
	if !p.prefix {
		_, err := w.Write(c.GetData())
		return err
	}
	id := muster.AllocID{Epoch: muster.Epoch(c.GetAlloc().GetEpoch()), Counter: c.GetAlloc().GetCounter()}
	if c.GetEnd() {
		for _, stderr := range []bool{false, true} {
			if rest := p.partial[partialKey{id, stderr}]; len(rest) > 0 {
				if err := p.lines(c, stderr, append(rest, '\n')); err != nil {
					return err
				}
			}
			delete(p.partial, partialKey{id, stderr})
		}
		return nil
	}
	key := partialKey{id, c.GetStderr()}
	data := append(p.partial[key], c.GetData()...)
	end := bytes.LastIndexByte(data, '\n') + 1
	p.partial[key] = bytes.Clone(data[end:])
	return p.lines(c, c.GetStderr(), data[:end])
}

func (p *logPrinter) lines(c *wire.LogChunk, stderr bool, data []byte) error {
	w := p.out
	if stderr {
		w = p.err
	}
	prefix := c.Prefix()
	var out bytes.Buffer
	for line := range bytes.Lines(data) {
		out.WriteString(prefix)
		out.Write(line)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// outcome is the exit code that a verb which carries the job's code gives, and what to say of it.
func outcome(info *wire.JobInfo) (code int, sentence string) {
	name := fmt.Sprintf("%s (%d)", info.GetName(), info.GetId())
	reason := info.GetReason()
	if reason != "" {
		reason = ": " + reason
	}
	switch info.GetState() {
	case muster.JobSucceeded.String():
		return 0, name + " succeeded"
	case muster.JobCancelled.String():
		if info.GetStartedAt() == 0 && info.GetExitCode() == muster.CodeNotStarted {
			return exitTimeout, name + " was cancelled" + reason
		}
		return exitCancelled, name + " was cancelled" + reason
	case muster.JobHeld.String():
		return exitHeld, name + " is held" + reason
	}
	sentence = name + " failed" + reason
	switch class := info.GetClass(); {
	case class == muster.ClassTimeout.String():
		return exitTimeLimit, sentence
	case class == muster.ClassOOM.String():
		return exitKilledByOOM, sentence
	case info.GetHasExitCode() && info.GetExitCode() != 0:
		return int(info.GetExitCode()), sentence
	}
	return 1, sentence
}

// over says whether a job will not go on by itself: ended, or held by the loop guard.
func over(info *wire.JobInfo) bool {
	phase, _ := muster.ParseJobPhase(info.GetState())
	return phase.Terminal() || phase == muster.JobHeld && info.GetClass() != ""
}

// await watches jobs until done says so of each (with any: of one), and gives their last states in the order of refs.
func await(ctx context.Context, client *rpc.Client, refs []*wire.JobRef, any bool, done func(*wire.JobInfo) bool,
	each func(*wire.JobInfo)) ([]*wire.JobInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	latest := map[uint64]*wire.JobInfo{}
	satisfied := map[uint64]bool{}
	err := client.WatchJobs(ctx, &wire.WatchJobsRequest{Jobs: refs}, func(info *wire.JobInfo) error {
		latest[info.GetId()] = info
		if each != nil {
			each(info)
		}
		if done(info) {
			satisfied[info.GetId()] = true
		}
		if any && len(satisfied) > 0 || len(satisfied) == len(refs) {
			return io.EOF
		}
		return nil
	})
	if err != nil && err != io.EOF {
		return nil, err
	}
	var out []*wire.JobInfo
	for _, ref := range refs {
		for _, info := range latest {
			if info.GetId() == ref.GetId() && (!any || satisfied[info.GetId()]) {
				out = append(out, info)
			}
		}
	}
	return out, nil
}
