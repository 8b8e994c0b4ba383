package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/test/harness"
	"github.com/musterhpc/muster/wire"
)

// A job ends while no server leads. Its worker says so to one server after the other; once somebody leads it counts once: one attempt failed,
// the second one, the last that it may have, is well.
func TestAJobThatEndsWhileNobodyLeadsIsReportedOnce(t *testing.T) {
	t.Parallel() // its servers and workers are idle for most of the time
	c := harness.StartLocal(t, 3)
	link := c.Worker("w1", 8)
	client, ctx := c.Client(), context.Background()
	starts, goOn, over := filepath.Join(c.Dir, "starts"), filepath.Join(c.Dir, "go-on"), filepath.Join(c.Dir, "over")
	request := harness.Script("ends", 1, `echo $MUSTER_ATTEMPT >> `+starts+`; while [ ! -e `+goOn+` ]; do sleep 0.02; done; : > `+over+`
		exit $((MUSTER_ATTEMPT < 2 ? 5 : 0))`)
	request.Specs[0].Groups[0].Retry.Attempts = 1
	request.Specs[0].Groups[0].Retry.Delay = int64(100 * time.Millisecond)
	reply, err := client.Submit(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "it runs", func() error {
		if got := lines(t, starts); !slices.Equal(got, []string{"1"}) {
			return fmt.Errorf("started: %v", got)
		}
		return nil
	})
	elect := c.Behead()
	if err := os.WriteFile(goOn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "it has ended", func() error { _, err := os.Stat(over); return err })
	for _, server := range c.Servers() { // none of them can take the report
		if link.Dials(server) > 0 {
			continue // it was told first
		}
		link.Only(server)
		harness.Until(t, "the worker turns to "+server, func() error {
			if link.Dials(server) == 0 {
				return errors.New("it has not")
			}
			return nil
		})
	}
	link.Only()
	elect()
	watch, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	var last *wire.JobInfo
	err = client.WatchJobs(watch, &wire.WatchJobsRequest{Jobs: []*wire.JobRef{{Id: reply.GetIds()[0]}}}, func(i *wire.JobInfo) error { last = i; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if last.GetState() != "succeeded" || last.GetAttempt() != 2 {
		t.Errorf("it is %s in attempt %d, want succeeded in the second", last.GetState(), last.GetAttempt())
	}
	if got := lines(t, starts); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("attempts that ran: %v, want one more", got)
	}
	whole, err := client.GetJob(ctx, &wire.GetJobRequest{Job: &wire.JobRef{Id: last.GetId()}})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range whole.GetAttempts() {
		if i == 0 && (a.GetExitCode() != 5 || muster.Class(a.GetClass()) != muster.ClassExit) {
			t.Errorf("the first attempt is told as %s with %d, want exit with 5", muster.Class(a.GetClass()), a.GetExitCode())
		}
	}
}

// The leader is stopped, another is elected, and a job is acknowledged that the old one has never heard of. Clients ask the old
// one for it: when it wakes their questions are the first that it sees, while it still takes itself for the leader. None of them
// is told that there is no such job. No worker is lost over it, and what ran runs on.
func TestALeaderThatWakesServesNoStaleRead(t *testing.T) {
	c := harness.Dev(t)
	goOn := filepath.Join(c.Dir, "go-on")
	c.Must("run", "-d", "--name", "long", "--", "sh", "-c", `while [ ! -e `+goOn+` ]; do sleep 0.05; done`)
	waitForState(t, c, "long", "running")
	var old harness.Agent
	var others []string
	harness.Until(t, "a leader", func() error {
		old, others = harness.Agent{}, nil
		for _, a := range c.Agents() {
			switch {
			case a.Leader:
				old = a
			case a.Role == "server":
				others = append(others, a.Address)
			}
		}
		if old.Name == "" {
			return errors.New("nobody leads")
		}
		return nil
	})
	ctx := context.Background()
	var asking []*rpc.Client // connected: what they ask lies at the old one's door while it is stopped
	for range 8 {
		client := dial(t, old.Address)
		if _, err := client.ListNodes(ctx, &wire.ListNodesRequest{}); err != nil {
			t.Fatal(err)
		}
		asking = append(asking, client)
	}
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(old.Pid, s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	reply, err := dial(t, others...).Submit(ctx, harness.Script("meanwhile", 0, "true"))
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, len(asking))
	for _, client := range asking {
		go func() {
			_, err := client.GetJob(ctx, &wire.GetJobRequest{Job: &wire.JobRef{Id: reply.GetIds()[0]}})
			answers <- err
		}()
	}
	select {
	case err := <-answers:
		t.Fatalf("a stopped server answered: %v", err)
	case <-time.After(2 * time.Second): // it sleeps
	}
	signal(syscall.SIGCONT)
	for range asking {
		if err := <-answers; err != nil {
			t.Errorf("asked for a job that was acknowledged before: %v", err)
		}
	}
	nodes, err := c.Client().ListNodes(ctx, &wire.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.GetNodes() {
		if n.GetState() == muster.NodeLost.String() {
			t.Errorf("%s is lost", n.GetNode().GetName())
		}
	}
	c.File("go-on", "")
	if j := waitForState(t, c, "long", "succeeded"); j.Attempt != 1 {
		t.Errorf("what ran needed %d attempts", j.Attempt)
	}
}

func dial(t *testing.T, addresses ...string) *rpc.Client {
	t.Helper()
	client, err := rpc.Dial(addresses, rpc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}
