package test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/harness"
	"github.com/musterhpc/muster/wire"
)

// A worker is cut off from all servers. Its task is dead before the other attempt starts elsewhere; healed, the worker is
// reconciled and gets work again.
func TestAWorkerIsCutOff(t *testing.T) {
	t.Parallel() // its servers and workers are idle for most of the time
	c := harness.StartLocal(t, 3)
	links := map[string]*harness.Link{"w1": c.Worker("w1", 8), "w2": c.Worker("w2", 8)}
	client, ctx := c.Client(), context.Background()
	beats := filepath.Join(c.Dir, "beats")
	request := harness.Script("beat", 0, `while true; do echo "$MUSTER_ATTEMPT $MUSTER_NODE $(cut -d' ' -f1 /proc/uptime)" >> `+beats+`; sleep 0.05; done`)
	request.Specs[0].Groups[0].Disconnect.StopAfter = int64(10 * time.Second)
	reply, err := client.Submit(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	beat := func() (attempt, node string, at float64) {
		all := lines(t, beats)
		words := strings.Fields(all[len(all)-1])
		if len(words) != 3 {
			return "", "", 0
		}
		at, err := strconv.ParseFloat(words[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		return words[0], words[1], at
	}
	var first string
	harness.Until(t, "the task beats", func() error {
		attempt, node, _ := beat()
		if first = node; attempt != "1" {
			return fmt.Errorf("attempt %q", attempt)
		}
		return nil
	})
	links[first].Cut()
	harness.Until(t, "the second attempt beats elsewhere", func() error {
		if attempt, node, _ := beat(); attempt != "2" || node == first {
			return fmt.Errorf("attempt %s on %s", attempt, node)
		}
		return nil
	})
	attemptsDontOverlap(t, beats)

	links[first].Heal()
	harness.Until(t, first+" is ready again", func() error {
		nodes, err := client.ListNodes(ctx, &wire.ListNodesRequest{Names: []string{first}})
		if err != nil {
			return err
		}
		if state := nodes.GetNodes()[0].GetState(); state != "ready" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	if _, err := client.Cancel(ctx, &wire.CancelRequest{Jobs: []*wire.JobRef{{Id: reply.GetIds()[0]}}, Now: true}); err != nil {
		t.Error(err)
	}
	var both []*wire.JobRef
	for range 2 {
		reply, err := client.Submit(ctx, harness.Script("whole-node", 8, "echo $MUSTER_NODE"))
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, &wire.JobRef{Id: reply.GetIds()[0]})
	}
	watch, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	if err := client.WatchJobs(watch, &wire.WatchJobsRequest{Jobs: both}, func(*wire.JobInfo) error { return nil }); err != nil {
		t.Errorf("the healed worker gets no work: %v", err)
	}
}
