package test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/test/harness"
)

// trainer builds the training example into a folder of the test's own, with its job file and its text.
func trainer(t *testing.T, c *harness.Cluster) (jobFile string) {
	t.Helper()
	folder := filepath.Join(c.Dir, "train")
	if err := os.CopyFS(folder, os.DirFS("../examples/train")); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "train"), ".")
	build.Dir = "../examples/train"
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return filepath.Join(folder, "train.hcl")
}

// A file with a list of rates makes a job of each; the middle one of three learns faster than the smallest.
func TestASweepIsOneFileAndManyJobs(t *testing.T) {
	c := harness.Dev(t)
	trainer(t, c)
	sweep, err := os.ReadFile("../examples/sweep/sweep.hcl")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.Dir, "sweep"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.Must("run", c.File("sweep/sweep.hcl", string(sweep)), "--var", "rates=[0.01, 0.5, 0.6, 0.7]")
	ended := c.Must("ps", "-a", "-l", "example=sweep", "-o", "name")
	if names := strings.Fields(ended); len(names) != 4 {
		t.Fatalf("the jobs are %v", names)
	}
	var losses []float64
	for _, name := range []string{"sweep-0", "sweep-1"} {
		loss, _ := strconv.ParseFloat(said(t, c, name, `step 300 loss ([\d.]+)`)[0], 64)
		losses = append(losses, loss)
	}
	if losses[1] > losses[0]-0.2 {
		t.Errorf("with rates 0.01 and 0.5 the losses are %v", losses)
	}
}

// said gives the numbers that a pattern's group found in a job's log, over all its attempts.
func said(t *testing.T, c *harness.Cluster, job, pattern string) []string {
	t.Helper()
	var found []string
	for attempt := 1; attempt <= show(t, c, job).Attempt; attempt++ {
		log, _, _ := c.Muster("logs", job, "--attempt", strconv.Itoa(attempt))
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(log, -1) {
			found = append(found, match[1])
		}
	}
	return found
}

// Training loses a machine on the way: kill -9 of the worker that runs rank 0, its supervisors and its tasks. The whole gang starts
// again, from the step that was saved last, and the loss goes on down. Asked to save itself by a cancel, it saves at the step it
// is at.
func TestTrainingGoesOnWhereItWasSaved(t *testing.T) {
	c := harness.Dev(t)
	file := trainer(t, c)
	id := strings.TrimSpace(c.Must("run", "-d", "--var", "steps=1000", file))
	node := waitForState(t, c, id, "running").Ranks[0].Node
	follower := c.Command("logs", "-f", "--rank", "0", id)
	log, err := follower.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = follower.Process.Kill(); _ = follower.Wait() }()
	for lines := bufio.NewScanner(log); lines.Scan() && !strings.Contains(lines.Text(), "step 100 loss"); {
	}
	c.Must("dev", "kill-worker", strings.TrimPrefix(node, "w"))
	waitForState(t, c, id, "succeeded")

	resumed := said(t, c, id, `resumed at step (\d+)`)
	if len(resumed) != 1 {
		t.Fatalf("it resumed at %v", resumed)
	}
	if step, _ := strconv.Atoi(resumed[0]); step < 100 || step%50 != 0 {
		t.Errorf("it resumed at step %d, which was never saved", step)
	}
	losses := said(t, c, id, `step \d+ loss ([\d.]+)`)
	first, _ := strconv.ParseFloat(losses[0], 64)
	last, _ := strconv.ParseFloat(losses[len(losses)-1], 64)
	if first < 3 || last > 2.3 {
		t.Errorf("the loss went from %v to %v", first, last)
	}

	id = strings.TrimSpace(c.Must("run", "-d", "--var", "steps=1000000", file))
	harness.Until(t, "it trains", func() error {
		if steps := said(t, c, id, `step (\d+) loss`); len(steps) == 0 {
			return fmt.Errorf("it said nothing")
		}
		return nil
	})
	c.Must("cancel", id)
	waitForState(t, c, id, "cancelled")
	if saved := said(t, c, id, `asked to stop \(cancelled\): saved at step (\d+)`); len(saved) != 1 {
		t.Errorf("cancelled, it saved at %v", saved)
	}
}
