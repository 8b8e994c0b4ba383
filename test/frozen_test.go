package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/test/harness"
	"github.com/musterhpc/muster/wire"
)

// A follower stands still while time goes on: a job that it saw start has ended, one that it has never heard of runs. Then it
// is the only server that the worker reaches. Nothing of what it would have is done: the job that runs is left alone, the one
// that ended is not started again.
func TestAWorkerReconnectsToAFollowerFrozenInThePast(t *testing.T) {
	t.Parallel() // its servers and workers are idle for most of the time
	c := harness.StartLocal(t, 3)
	link := c.Worker("w1", 8)
	client, ctx := c.Client(), context.Background()
	starts := filepath.Join(c.Dir, "starts")
	submit := func(name string) *wire.JobRef {
		t.Helper()
		reply, err := client.Submit(ctx, harness.Script(name, 1,
			`echo $MUSTER_JOB_NAME $MUSTER_ATTEMPT >> `+starts+`; cd `+c.Dir+`; while [ ! -e end-`+name+` ]; do : > beat-`+name+`; sleep 0.02; done`))
		if err != nil {
			t.Fatal(err)
		}
		harness.Until(t, name+" runs", func() error {
			if !slices.ContainsFunc(lines(t, starts), func(line string) bool { return strings.HasPrefix(line, name+" ") }) {
				return fmt.Errorf("only these have started: %v", lines(t, starts))
			}
			return nil
		})
		return &wire.JobRef{Id: reply.GetIds()[0]}
	}
	finish := func(name string, ref *wire.JobRef) *wire.JobInfo {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.Dir, "end-"+name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		watch, cancel := context.WithTimeout(ctx, harness.Patience)
		defer cancel()
		var last *wire.JobInfo
		err := client.WatchJobs(watch, &wire.WatchJobsRequest{Jobs: []*wire.JobRef{ref}}, func(i *wire.JobInfo) error { last = i; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return last
	}

	over := submit("over")
	frozen, thaw := c.FreezeFollower(link)
	if got := finish("over", over); got.GetState() != "succeeded" {
		t.Fatalf("over is %s", got.GetState())
	}
	runs := submit("runs")
	before := lines(t, starts)

	dials := link.Dials(frozen)
	link.Only(frozen)
	harness.Until(t, "the worker has been sent away by the frozen server, and asks again", func() error {
		if n := link.Dials(frozen) - dials; n < 2 {
			return fmt.Errorf("it connected %d times", n)
		}
		return nil
	})
	if after := lines(t, starts); !slices.Equal(before, after) {
		t.Errorf("started before: %v, and after: %v", before, after)
	}
	beat := filepath.Join(c.Dir, "beat-runs")
	if err := os.Remove(beat); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "the job that the frozen server has never heard of beats on", func() error { _, err := os.Stat(beat); return err })

	link.Only()
	thaw()
	if got := finish("runs", runs); got.GetState() != "succeeded" || got.GetAttempt() != 1 {
		t.Errorf("the job is %s in attempt %d, want succeeded in the first", got.GetState(), got.GetAttempt())
	}
	if after := lines(t, starts); !slices.Equal(before, after) {
		t.Errorf("started before: %v, and in the end: %v", before, after)
	}
}
