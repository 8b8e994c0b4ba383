package worker

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/gpu"
	"github.com/musterhpc/muster/worker/step"
)

var update = flag.Bool("update", false, "write testdata anew")

// golden compares what was got with a file; -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, d)
	}
}

func lines(env []muster.EnvVar) string {
	var b strings.Builder
	for _, v := range env {
		b.WriteString(v.Name + "=" + v.Value + "\n")
	}
	return b.String()
}

func factsOf(name, ip string) *Facts {
	gpus := gpu.Simulated("one", 4, "H100", 80*muster.GiB)
	for i := range gpus {
		gpus[i].UUID = "GPU-" + string(rune('a'+i))
	}
	return &Facts{Node: name, IP: ip, GPUs: gpus, User: "ann", Home: "/home/ann", Shell: "/bin/bash",
		TaskDir: "/var/lib/muster/tasks/1-42", Checkpoint: "/var/lib/muster/checkpoints/1042"}
}

// rankOf is a rank of a job of n ranks, two on each node.
func rankOf(n, rank, gpus int) *step.Assignment {
	a := &step.Assignment{
		Alloc: muster.Allocation{ID: muster.AllocID{Epoch: 1, Counter: 42}, Job: 1042, Attempt: 2, Rank: rank, Slots: muster.SlotRange(gpus),
			MilliCores: 8000, Memory: 64 * muster.GiB, Lease: time.Minute},
		Spec: &muster.JobSpec{Name: "train", Queue: "default", Groups: []muster.Group{{Name: "train", Count: n, Task: muster.Task{
			Command: "torchrun", Args: []string{"train.py", "--rank=${rank}"}, Resources: muster.Resources{GPUs: gpus}}}}},
		JobName: "train", User: "ann", Queue: "default",
	}
	for r := range n {
		p := step.Peer{Rank: r, Node: "gpu-0" + string(rune('1'+r/2)), IP: "10.0.0." + string(rune('1'+r/2)), GPUs: gpus, MilliCores: 8000}
		if r == 0 {
			p.Port = 20007
		}
		a.Peers = append(a.Peers, p)
	}
	return a
}

func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		assignment *step.Assignment
		facts      *Facts
		change     func(a *step.Assignment, f *Facts)
	}{
		"one-without-gpus": {rankOf(1, 0, 0), factsOf("gpu-01", "10.0.0.1"), nil},
		"one-with-two-gpus": {rankOf(1, 0, 2), factsOf("gpu-01", "10.0.0.1"), func(a *step.Assignment, f *Facts) {
			f.Deadline = time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)
			a.Spec.Groups[0].Checkpoint.Signal = "SIGUSR2"
			f.Interface = "eth0" // one node: NCCL chooses itself
		}},
		"third-of-four-one-gpu-each": {rankOf(4, 3, 1), factsOf("gpu-02", "10.0.0.2"), func(a *step.Assignment, f *Facts) {
			f.Interface = "eth0"
		}},
		"the-users-own-wins": {rankOf(1, 0, 0), factsOf("gpu-01", "fd00::1"), func(a *step.Assignment, f *Facts) {
			a.Peers[0].IP = "fd00::1"
			a.Spec.Groups[0].Task.Env = []muster.EnvVar{
				{Name: "OMP_NUM_THREADS", Value: "1"},
				{Name: "OUT", Value: "${checkpoint.dir}/${job.name}-${job.id}/${group}/${rank}-of-${ranks}@${attempt} on ${node.name} ${node.ip} in ${task.dir}"},
				{Name: "TEXT", Value: "$${HOME}"},
			}
		}},
		"two-groups": {rankOf(2, 0, 1), factsOf("gpu-02", "10.0.0.2"), func(a *step.Assignment, f *Facts) {
			a.Spec.Groups = []muster.Group{a.Spec.Groups[0], {Name: "eval-set", Count: 1}}
			a.Alloc.Group = 1
			a.Peers = append(a.Peers, step.Peer{Group: 1, Rank: 0, Node: "gpu-02", IP: "10.0.0.2", MilliCores: 2000})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.assignment, c.facts)
			}
			env, err := Environment(c.assignment, c.facts)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "env-"+name+".txt", lines(env)+"\nhostfile:\n"+hostFile(c.assignment))
		})
	}
}

func TestTaskIsFilledInCompletely(t *testing.T) {
	a, f := rankOf(4, 3, 1), factsOf("gpu-02", "10.0.0.2")
	task, err := Task(a, f, "/var/lib/muster/logs/1-42")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(task.Argv, []string{"torchrun", "train.py", "--rank=3"}) || task.Dir != f.TaskDir || task.Script != "" {
		t.Errorf("%+v", task)
	}
	a.Spec.Groups[0].Task.Script = "#!/bin/sh\necho ${rank} $HOME $${HOME}\n"
	a.Spec.Groups[0].Task.Dir = "${checkpoint.dir}/x"
	if task, err = Task(a, f, "/var/lib/muster/logs/1-42"); err != nil {
		t.Fatal(err)
	}
	if task.Script != "#!/bin/sh\necho 3 $HOME ${HOME}\n" || task.Argv != nil || task.Dir != "/var/lib/muster/checkpoints/1042/x" {
		t.Errorf("%+v", task)
	}
	a.Spec.Groups[0].Task.Script = "echo ${port.http}"
	if _, err = Task(a, f, "/x"); err == nil || !strings.Contains(err.Error(), "script: ") {
		t.Errorf("a value that this worker doesn't know: %v", err)
	}
}

func TestNonsenseFromAServerIsAnError(t *testing.T) {
	a := rankOf(1, 0, 0)
	a.Alloc.Group = 5
	if _, err := Environment(a, factsOf("n", "10.0.0.1")); err == nil {
		t.Error("a group that isn't there")
	}
	a = rankOf(1, 0, 0)
	a.Peers = nil
	if _, err := Environment(a, factsOf("n", "10.0.0.1")); err == nil {
		t.Error("no places")
	}
}

// docs/environment.md names every variable that a task may find.
func TestTheEnvironmentIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/env-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no golden environments")
	}
	for _, path := range files {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(body)) {
			name, _, is := strings.Cut(line, "=")
			if !is || strings.Contains(name, " ") || name == "OUT" || name == "TEXT" { // the hostfile; the user's own
				continue
			}
			if strings.HasPrefix(name, "MUSTER_IPS_") {
				name = "MUSTER_IPS_GROUP"
			}
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/environment.md does not name %s", name)
			}
		}
	}
}
