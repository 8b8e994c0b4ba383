package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/harness"
	"github.com/musterhpc/muster/wire"
)

func TestMain(m *testing.M) {
	code := m.Run()
	harness.Cleanup()
	os.Exit(code)
}

// job is what these tests read of `show -o json`.
type job struct {
	ID       uint64 `json:"id"`
	State    string `json:"state"`
	Class    string `json:"class"`
	Attempt  int    `json:"attempt"`
	ExitCode *int   `json:"exit_code"`
	Ranks    []struct {
		Node  string `json:"node"`
		State string `json:"state"`
	} `json:"ranks"`
}

func show(t *testing.T, c *harness.Cluster, name string) job {
	t.Helper()
	var list struct{ Items []job }
	if err := json.Unmarshal([]byte(c.Must("show", name, "-o", "json")), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("show %s: %v: %d items", name, err, len(list.Items))
	}
	return list.Items[0]
}

func waitForState(t *testing.T, c *harness.Cluster, name, state string) job {
	t.Helper()
	var j job
	harness.Until(t, name+" is "+state, func() error {
		if j = show(t, c, name); j.State != state {
			return fmt.Errorf("it is %s", j.State)
		}
		return nil
	})
	return j
}

// lines gives the lines of a file that jobs append to; none when it isn't there yet.
func lines(t *testing.T, path string) []string {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimRight(string(body), "\n"), "\n")
}

// Ten times the leader dies with -9 under twenty clients. Each acknowledged job ran exactly once, no client saw an error, a
// running task noticed nothing, its followed log shows each line once, and the servers agree to the last digit. No new leader
// takes a worker that is well for lost, though it has never heard of it: a task whose lease is shorter than all this runs on.
func TestTheLeaderIsKilledTenTimes(t *testing.T) {
	c := harness.Dev(t)
	ran, stopFile := filepath.Join(c.Dir, "ran"), filepath.Join(c.Dir, "stop")
	c.Must("run", "-d", "--name", "long", "--", "sh", "-c",
		`n=0; while [ ! -e `+stopFile+` ]; do n=$((n+1)); echo line $n; sleep 0.05; done; echo last $n`)
	c.Must("run", "-d", c.File("brief.hcl", `job "brief" {
  disconnect {
    stop_after = "10s"
  }
  task "brief" {
    script = "while [ ! -e `+stopFile+` ]; do sleep 0.1; done"
  }
}
`))
	waitForState(t, c, "brief", "running")
	began := time.Now()
	follower := c.Command("logs", "-f", "long")
	var followed bytes.Buffer
	follower.Stdout = &followed
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = follower.Process.Kill() }) // it would wait for the cluster for ever

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var acknowledged atomic.Int64
	var mu sync.Mutex
	names := map[string]uint64{}
	var clients sync.WaitGroup
	for n := range 20 {
		client := c.Client()
		clients.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				name := fmt.Sprintf("j-%d-%d", n, k)
				reply, err := client.Submit(context.Background(), harness.Script(name, 0, `echo $MUSTER_JOB_NAME >> `+ran))
				if err != nil {
					t.Errorf("submission of %s: %v", name, err)
					return
				}
				mu.Lock()
				names[name] = reply.GetIds()[0]
				mu.Unlock()
				acknowledged.Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(500 * time.Millisecond): // the pace of a client, not a wait for something
				}
			}
		})
	}
	for range 10 {
		before := acknowledged.Load()
		c.Must("dev", "kill-leader")
		harness.Until(t, "submissions go on, and the killed server is back", func() error {
			if n := acknowledged.Load() - before; n < 20 {
				return fmt.Errorf("%d submissions since the kill", n)
			}
			leaders := 0
			for _, a := range c.Agents() {
				if a.Role == "server" && a.Pid == 0 {
					return errors.New(a.Name + " is down")
				}
				if a.Leader {
					leaders++
				}
			}
			if leaders != 1 {
				return fmt.Errorf("%d leaders", leaders)
			}
			return nil
		})
	}
	stop()
	clients.Wait()
	harness.Until(t, "a lease of 10 s that nobody renews is over", func() error {
		if took := time.Since(began); took < 12*time.Second {
			return fmt.Errorf("%v have passed", took)
		}
		return nil
	})

	client := c.Client()
	watch, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	var refs []*wire.JobRef
	for _, id := range names {
		refs = append(refs, &wire.JobRef{Id: id})
	}
	states := map[uint64]string{}
	if err := client.WatchJobs(watch, &wire.WatchJobsRequest{Jobs: refs}, func(i *wire.JobInfo) error { states[i.GetId()] = i.GetState(); return nil }); err != nil {
		t.Fatalf("waiting for %d jobs: %v", len(refs), err)
	}
	times := map[string]int{}
	for _, line := range lines(t, ran) {
		times[line]++
	}
	for name, id := range names {
		if states[id] != "succeeded" || times[name] != 1 {
			t.Errorf("%s (%d) is %s and ran %d times", name, id, states[id], times[name])
		}
	}
	t.Logf("%d jobs acknowledged and run, over 10 leaders killed", len(names))

	c.File("stop", "")
	waitForState(t, c, "long", "succeeded")
	if err := follower.Wait(); err != nil {
		t.Errorf("logs -f: %v", err)
	}
	eachLineOnce(t, followed.String())
	if long := show(t, c, "long"); long.Attempt != 1 {
		t.Errorf("the long job is in attempt %d: it noticed", long.Attempt)
	}
	if brief := waitForState(t, c, "brief", "succeeded"); brief.Attempt != 1 {
		t.Errorf("the job with the short lease is in attempt %d: a leader took its worker for lost", brief.Attempt)
	}
	digestsAgree(t, c)
}

func eachLineOnce(t *testing.T, output string) {
	t.Helper()
	all := strings.Split(strings.TrimRight(output, "\n"), "\n")
	for i, line := range all[:len(all)-1] {
		if line != "line "+strconv.Itoa(i+1) {
			t.Fatalf("line %d of the followed log is %q", i+1, line)
		}
	}
	if last := all[len(all)-1]; last != "last "+strconv.Itoa(len(all)-1) {
		t.Errorf("the followed log ends with %q after %d lines", last, len(all)-1)
	}
}

func digestsAgree(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Until(t, "the servers have equal digests at an equal index", func() error {
		var list struct {
			Items []struct {
				ID           string
				AppliedIndex uint64 `json:"applied_index"`
				Digest       string
			}
		}
		if err := json.Unmarshal([]byte(c.Must("server", "ls", "-o", "json")), &list); err != nil {
			return err
		}
		for _, s := range list.Items {
			if s.AppliedIndex != list.Items[0].AppliedIndex {
				return errors.New("not at an equal index just now")
			}
			if s.Digest != list.Items[0].Digest {
				t.Fatalf("at index %d the digests differ: %v", s.AppliedIndex, list.Items)
			}
		}
		return nil
	})
}

// All servers die at once while tasks run, and come back within the lease: the tasks are the same processes, and none was started twice.
func TestAllServersAreKilledAndComeBack(t *testing.T) {
	c := harness.Dev(t)
	starts, goOn := filepath.Join(c.Dir, "starts"), filepath.Join(c.Dir, "go-on")
	for i := range 6 {
		c.Must("run", "-d", "--name", fmt.Sprintf("t%d", i), "--gpus", "1", "--", "sh", "-c",
			`echo $MUSTER_JOB_NAME >> `+starts+`; while [ ! -e `+goOn+` ]; do sleep 0.05; done`)
	}
	harness.Until(t, "six tasks run", func() error {
		if n := len(lines(t, starts)); n < 6 {
			return fmt.Errorf("%d have started", n)
		}
		return nil
	})
	for _, name := range []string{"s1", "s2", "s3"} {
		c.Kill(name)
	}
	c.File("go-on", "")
	for i := range 6 {
		if j := waitForState(t, c, fmt.Sprintf("t%d", i), "succeeded"); j.Attempt != 1 {
			t.Errorf("t%d needed %d attempts", i, j.Attempt)
		}
	}
	if got := lines(t, starts); len(got) != 6 {
		t.Errorf("tasks started: %v", got)
	}
}

// attemptsDontOverlap looks at beats of two attempts, lines "attempt, anything, seconds since boot": the first ended before the
// second began.
func attemptsDontOverlap(t *testing.T, beats string) {
	t.Helper()
	var ended, began float64
	for _, line := range lines(t, beats) {
		words := strings.Fields(line)
		at, err := strconv.ParseFloat(words[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		if words[0] == "1" {
			ended = at
		} else if began == 0 {
			began = at
		}
	}
	if began <= ended {
		t.Errorf("attempt 1 beat until %.2f s, attempt 2 from %.2f s on", ended, began)
	}
}

// All servers stay away for longer than the lease: the first attempt is dead before the second begins.
func TestServersAwayForLongerThanTheLease(t *testing.T) {
	c := harness.Dev(t, "--no-restart")
	beats := filepath.Join(c.Dir, "beats")
	file := c.File("beat.hcl", `job "beat" {
  disconnect {
    stop_after = "10s"
  }
  task "beat" {
    script = <<-EOT
      while true; do echo "$MUSTER_ATTEMPT $$ $(cut -d' ' -f1 /proc/uptime)" >> `+beats+`; sleep 0.1; done
    EOT
  }
}
`)
	c.Must("run", "-d", file)
	waitForState(t, c, "beat", "running")
	for _, name := range []string{"s1", "s2", "s3"} {
		c.Kill(name)
	}
	var last int
	still := time.Now()
	harness.Until(t, "the task has stopped by itself", func() error {
		if n := len(lines(t, beats)); n != last {
			last, still = n, time.Now()
		}
		if time.Since(still) < 2*time.Second {
			return errors.New("it beats")
		}
		return nil
	})
	for _, name := range []string{"s1", "s2", "s3"} {
		c.Must("dev", "start", name)
	}
	harness.Until(t, "the second attempt runs", func() error {
		if words := strings.Fields(lines(t, beats)[len(lines(t, beats))-1]); words[0] != "2" {
			return fmt.Errorf("the last beat is of attempt %s", words[0])
		}
		return nil
	})
	attemptsDontOverlap(t, beats)
	c.Must("cancel", "beat")
}

// The agent is killed while a task ends: its exit and its last line are known once, after the restart.
func TestTheAgentIsKilledWhileATaskEnds(t *testing.T) {
	c := harness.Dev(t, "--workers", "1")
	goOn, over := filepath.Join(c.Dir, "go-on"), filepath.Join(c.Dir, "over")
	c.Must("run", "-d", "--name", "ending", "--", "sh", "-c",
		`while [ ! -e `+goOn+` ]; do sleep 0.02; done; echo the last line; touch `+over+`; exit 5`)
	waitForState(t, c, "ending", "running")
	agent := c.Agent("w1")
	c.Kill("w1")
	c.File("go-on", "")
	harness.Until(t, "the task has ended without an agent", func() error { _, err := os.Stat(over); return err })
	j := waitForState(t, c, "ending", "failed")
	if j.ExitCode == nil || *j.ExitCode != 5 || j.Attempt != 1 {
		t.Errorf("it ended with %v in attempt %d, want 5 in attempt 1", j.ExitCode, j.Attempt)
	}
	if got := c.Must("logs", "ending"); got != "the last line\n" {
		t.Errorf("its log is %q", got)
	}
	if now := c.Agent("w1"); now.Pid == agent.Pid {
		t.Error("the agent was never killed")
	}
}

// A worker loses power with a rank of a gang: the other rank is stopped, and the gang starts again whole.
func TestAWorkerLosesPower(t *testing.T) {
	c := harness.Dev(t)
	goOn := filepath.Join(c.Dir, "go-on")
	c.Must("run", "-d", "--name", "gang", "--ranks", "2", "--gpus", "8", "--", "sh", "-c",
		`echo attempt $MUSTER_ATTEMPT; while [ ! -e `+goOn+` ]; do sleep 0.05; done`)
	first := waitForState(t, c, "gang", "running")
	c.Must("dev", "kill-worker", first.Ranks[0].Node)
	harness.Until(t, "the second attempt runs", func() error {
		if j := show(t, c, "gang"); j.Attempt < 2 || j.State != "running" {
			return fmt.Errorf("attempt %d is %s", j.Attempt, j.State)
		}
		return nil
	})
	c.File("go-on", "")
	waitForState(t, c, "gang", "succeeded")
}

// The supervisor of a worker is killed: its tasks die with it at once, and start again.
func TestTheSupervisorIsKilled(t *testing.T) {
	c := harness.Dev(t, "--workers", "1")
	pids := filepath.Join(c.Dir, "attempts")
	c.Must("run", "-d", "--name", "orphan", "--", "sh", "-c",
		`echo $MUSTER_ATTEMPT >> `+pids+`; if [ $MUSTER_ATTEMPT = 1 ]; then (setsid sleep 987654 &); sleep 1000; fi`)
	waitForState(t, c, "orphan", "running")
	harness.Until(t, "its daemon runs", func() error { return daemonRuns(true) })
	harness.KillSupervisors(filepath.Dir(c.Agent("w1").Log))
	waitForState(t, c, "orphan", "succeeded")
	if err := daemonRuns(false); err != nil {
		t.Error(err)
	}
	if got := lines(t, pids); len(got) != 2 {
		t.Errorf("attempts that ran: %v", got)
	}
}

// daemonRuns says whether the process that the task left behind lives, if that isn't as wanted.
func daemonRuns(want bool) error {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	lives := false
	for _, path := range paths {
		if body, err := os.ReadFile(path); err == nil && string(body) == "sleep\x00987654\x00" {
			lives = true
		}
	}
	if lives != want {
		return fmt.Errorf("the task's daemon lives: %v", lives)
	}
	return nil
}
