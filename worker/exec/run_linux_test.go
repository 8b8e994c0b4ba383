package exec

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func TestATaskRunsAndItsEndIsTold(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.run(n.task(`echo out; echo err >&2; echo "$MUSTER_ALLOC"; pwd`))
		s := n.ended(task)
		if s.Class != muster.ClassNone || s.ExitCode != 0 || s.Message != "" || s.Pid == 0 || s.Running.IsZero() || s.Ended.Before(s.Running) {
			t.Errorf("ended as %+v", s)
		}
		streams := map[bool]string{}
		_, _, records := readAll(t, task.LogDir, LogFrom{})
		for _, record := range records {
			streams[record.Stderr] += string(record.Data)
		}
		if streams[true] != "err\n" || streams[false] != "out\n1-1\n"+task.TaskDir+"\n" {
			t.Errorf("printed %v", streams)
		}
		n.wantNothingLeft()
	})
}

func TestHowTasksEnd(t *testing.T) {
	n := newNode(t, false)
	if err := os.WriteFile(filepath.Join(n.dir, "plainfile"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "odd"), []byte("#!/no/such/shell\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		change  func(*Task)
		class   muster.Class
		code    int
		signal  syscall.Signal
		message string
	}{
		{"exit code", func(t *Task) { t.Argv[2] = "exit 3" }, muster.ClassExit, 3, 0, ""},
		{"success code", func(t *Task) { t.Argv[2] = "exit 3"; t.Success = []int{0, 3} }, muster.ClassNone, 3, 0, ""},
		{"signal", func(t *Task) { t.Argv[2] = "kill -SEGV $$" }, muster.ClassExit, 139, syscall.SIGSEGV, "SIGSEGV"},
		{"not found", func(t *Task) { t.Argv = []string{"nonesuch"} }, muster.ClassExit, 127, 0, `command "nonesuch" not found in PATH`},
		{"no such file", func(t *Task) { t.Argv = []string{"./nonesuch"} }, muster.ClassExit, 127, 0, `command "./nonesuch" does not exist`},
		{"not executable", func(t *Task) { t.Argv = []string{n.dir + "/plainfile"} }, muster.ClassExit, 126, 0,
			`command "` + n.dir + `/plainfile" can't be executed: permission denied`},
		{"no interpreter", func(t *Task) { t.Argv = []string{n.dir + "/odd"} }, muster.ClassExit, 127, 0,
			`command "` + n.dir + `/odd": the interpreter that its first line names does not exist`},
		{"in PATH", func(t *Task) { t.Argv = []string{"true"} }, muster.ClassNone, 0, 0, ""},
		{"script", func(t *Task) { t.Argv = nil; t.Script = "false | true\nexit 4" }, muster.ClassExit, 1, 0, ""},
		{"script with interpreter", func(t *Task) { t.Argv = nil; t.Script = "#!/bin/sh\nfalse\nexit 5" }, muster.ClassExit, 5, 0, ""},
	} {
		task := n.task("")
		c.change(&task)
		s := n.ended(n.run(task))
		if s.Class != c.class || s.ExitCode != c.code || s.Signal != int(c.signal) || s.Message != c.message {
			t.Errorf("%s: ended as %+v", c.name, s)
		}
	}
}

func TestAFolderThatIsNotThereIsNamed(t *testing.T) {
	n := newNode(t, false)
	task := n.task("true")
	task.Dir = "/data/nonesuch"
	err := n.Prepare(context.Background(), task)
	var prepare *PrepareError
	if !errors.As(err, &prepare) || prepare.Message != "folder /data/nonesuch does not exist on gpu-07" {
		t.Errorf("Prepare gave %v", err)
	}
	if list, err := n.List(context.Background()); err != nil || len(list) != 0 {
		t.Errorf("afterwards there is %v, %v", list, err)
	}
}

func TestNothingIsLeftOfADaemon(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.run(n.task(`setsid sh -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 & (setsid sleep 1000 >/dev/null 2>&1 &) ; sleep 0.1; exit 7`))
		if s := n.ended(task); s.ExitCode != 7 {
			t.Errorf("ended as %+v", s)
		}
		n.wantNothingLeft()
	})
}

func TestADaemonThatHoldsTheOutputDoesNotHoldTheEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.run(n.task(`(setsid sleep 1000 &); echo done`))
		began := time.Now()
		n.ended(task)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the end took %s", took)
		}
		if out := n.output(task); out != "done\n" {
			t.Errorf("printed %q", out)
		}
		n.wantNothingLeft()
	})
}

func TestWhoIgnoresTheKillSignalIsKilled(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.task(`trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done`)
		task.KillTimeout = 300 * time.Millisecond
		n.run(task)
		n.says(task, "up")
		n.stop(task, muster.StopTerm, muster.ClassCancelled, "cancelled by ann")
		s := n.ended(task)
		if s.Class != muster.ClassCancelled || s.Signal != int(syscall.SIGKILL) || s.ExitCode != 137 || s.Message != "cancelled by ann" {
			t.Errorf("ended as %+v", s)
		}
		if out := n.output(task); !strings.Contains(out, "asked") {
			t.Errorf("it was never asked: %q", out)
		}
		n.wantNothingLeft()
	})
}

func TestAKillSignalReachesAllProcessesOfARank(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.run(n.task(`trap 'wait; exit 0' TERM; sh -c 'trap "echo child" TERM; echo up; while :; do sleep 0.05; done' & wait`))
		n.says(task, "up")
		n.stop(task, muster.StopTerm, muster.ClassCancelled, "")
		n.says(task, "child")
		n.stop(task, muster.StopKill, muster.ClassCancelled, "")
		n.ended(task)
		n.wantNothingLeft()
	})
}

func TestATaskSavesItselfWhenAsked(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.task(`trap 'cat "$STOP"; exit 0' USR2; echo up; while :; do sleep 0.05; done`)
		task.Env = append(task.Env, "STOP="+task.StopFile)
		task.Checkpoint = muster.Checkpoint{Grace: 30 * time.Second, Signal: "SIGUSR2"}
		n.run(task)
		n.says(task, "up")
		n.stop(task, muster.StopSave, muster.ClassPreempted, "preempted by 1050")
		s := n.ended(task)
		// It saved and exited 0; it ended because it was asked to.
		if s.Class != muster.ClassPreempted || s.ExitCode != 0 || s.Message != "preempted by 1050" {
			t.Errorf("ended as %+v", s)
		}
		word, by, _ := strings.Cut(strings.TrimSuffix(fileLine(t, task.StopFile), "\n"), " ")
		at, err := time.Parse(time.RFC3339, by)
		if left := time.Until(at); word != "preempted" || err != nil || left < 5*time.Second || left > 31*time.Second {
			t.Errorf("the stop file says %q %q: %v", word, by, err)
		}
		if out := n.output(task); !strings.Contains(out, "preempted 20") {
			t.Errorf("the signal came before the file: %q", out)
		}
	})
}

func TestAfterTheGraceTheKillSignalComes(t *testing.T) {
	n := newNode(t, false)
	task := n.task(`trap 'echo term; exit 9' TERM; echo up; while :; do sleep 0.05; done`)
	task.Checkpoint.Grace = 300 * time.Millisecond
	n.run(task)
	n.says(task, "up")
	n.stop(task, muster.StopSave, muster.ClassDrain, "gpu-07 is drained")
	if s := n.until(task, "stopping", func(s Status) bool { return s.Phase >= muster.AllocStopping }); s.Phase != muster.AllocStopping {
		t.Errorf("it was not seen stopping: %+v", s)
	}
	s := n.ended(task)
	if s.Class != muster.ClassDrain || s.ExitCode != 9 || s.Ended.Sub(s.Running) < 300*time.Millisecond {
		t.Errorf("ended as %+v", s)
	}
	if line := fileLine(t, task.StopFile); !strings.HasPrefix(line, "drain ") {
		t.Errorf("the stop file says %q", line)
	}
}

func TestTheTimeLimitAsksBeforeItKills(t *testing.T) {
	n := newNode(t, false)
	task := n.task(`trap '' TERM; until test -e "$STOP"; do sleep 0.05; done; cat "$STOP"; while :; do sleep 0.05; done`)
	task.Env = append(task.Env, "STOP="+task.StopFile)
	task.TimeLimit, task.KillTimeout = time.Second, 200*time.Millisecond
	task.Checkpoint.Grace = 600 * time.Millisecond
	n.run(task)
	s := n.ended(task)
	if s.Class != muster.ClassTimeout || s.Signal != int(syscall.SIGKILL) || !strings.Contains(s.Message, "time limit of 1s") {
		t.Errorf("ended as %+v", s)
	}
	if took := s.Ended.Sub(s.Running); took < time.Second || took > 3*time.Second {
		t.Errorf("it ran for %s", took)
	}
	if out := n.output(task); !strings.HasPrefix(out, "timeout 20") {
		t.Errorf("the stop file said %q", out)
	}
}

func TestALeaseThatIsNotExtendedKills(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.task(`trap '' TERM; sleep 1000`)
		task.Lease, task.LeaseEnd = 60*time.Second, Now().Add(7*time.Second) // the kill comes 6 s before the end
		waits := n.task("true")
		waits.Lease, waits.LeaseEnd = task.Lease, task.LeaseEnd
		n.run(task)
		if err := n.Prepare(context.Background(), waits); err != nil {
			t.Fatal(err)
		}
		for _, x := range []Task{task, waits} {
			if s := n.ended(x); s.Class != muster.ClassNode || s.Message != "no contact with the servers for 1m" {
				t.Errorf("ended as %+v", s)
			}
		}
		if err := n.Start(context.Background(), waits.Alloc); err != nil {
			t.Errorf("Start after the end gave %v", err)
		}
		alive, err := n.Extend(context.Background(), map[muster.AllocID]BootTime{task.Alloc: Now().Add(time.Hour)})
		if err != nil || len(alive) != 0 {
			t.Errorf("an ended lease was extended: %v, %v", alive, err)
		}
		n.wantNothingLeft()
	})
}

// Its namespaces, its log or the look for its program may take longer than its lease lasts.
func TestWhatIsToBeKilledBeforeItsForkIsNeverForked(t *testing.T) {
	var s supervisor
	for name, after := range map[string]func(*rank){
		"lease": func(r *rank) { r.plan.lease, r.plan.leaseEnd = time.Minute, Now().Add(5*time.Second) },
		"stop":  func(r *rank) { r.plan.Ask(muster.Stop{Mode: muster.StopSave, Class: muster.ClassCancelled}, Now()) },
	} {
		r := &rank{task: Task{Argv: []string{"/bin/true"}, TaskDir: t.TempDir()}, wake: make(chan struct{}, 1)}
		after(r)
		if main, _, end := s.launch(r, nil); main != nil || end != (ending{}) || r.plan.stop.Mode == muster.StopNone { // forking would need a space
			t.Errorf("%s: got %+v, %+v", name, main, end)
		}
	}
}

func TestAnExtendedLeaseLetsTheTaskGoOn(t *testing.T) {
	n := newNode(t, false)
	task := n.task(`sleep 1.5; exit 4`)
	task.Lease, task.LeaseEnd = 10*time.Second, Now().Add(3*time.Second)
	n.run(task)
	alive, err := n.Extend(context.Background(), map[muster.AllocID]BootTime{task.Alloc: Now().Add(10 * time.Second), {Epoch: 1, Counter: 99}: 1})
	if err != nil || len(alive) != 1 || alive[0] != task.Alloc {
		t.Fatalf("alive: %v, %v", alive, err)
	}
	if s := n.ended(task); s.Class != muster.ClassExit || s.ExitCode != 4 {
		t.Errorf("ended as %+v", s)
	}
}

func TestAnAllocationIsForkedOnce(t *testing.T) {
	n := newNode(t, false)
	task := n.task(`echo x >>"$DIR/forks"; sleep 0.2`)
	if err := n.Prepare(context.Background(), task); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	for range 8 {
		go func() { errs <- n.Start(context.Background(), task.Alloc) }()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	n.ended(task)
	if err := n.Start(context.Background(), task.Alloc); err != nil {
		t.Error(err)
	}
	if forks := fileLine(t, filepath.Join(n.dir, "forks")); forks != "x\n" {
		t.Errorf("it was forked %d times", len(forks)/2)
	}
}

func TestAStopBeforeTheStartEndsIt(t *testing.T) {
	n := newNode(t, false)
	task := n.task(`touch "$DIR/ran"`)
	if err := n.Prepare(context.Background(), task); err != nil {
		t.Fatal(err)
	}
	n.stop(task, muster.StopTerm, muster.ClassCollateral, "rank 1 failed")
	if s := n.ended(task); s.Class != muster.ClassCollateral || !s.Running.IsZero() {
		t.Errorf("ended as %+v", s)
	}
	if err := n.Start(context.Background(), task.Alloc); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(n.dir, "ran")); err == nil {
		t.Error("it ran")
	}
	n.output(task) // complete, and empty
}

func TestStrongerStopsWin(t *testing.T) {
	n := newNode(t, false)
	task := n.task(`trap '' TERM; echo up; while :; do sleep 0.05; done`)
	task.Checkpoint.Grace, task.KillTimeout = time.Hour, time.Hour
	n.run(task)
	n.says(task, "up")
	n.stop(task, muster.StopSave, muster.ClassPreempted, "first")
	n.stop(task, muster.StopTerm, muster.ClassDrain, "second")
	n.stop(task, muster.StopSave, muster.ClassPreempted, "weaker")
	n.stop(task, muster.StopKill, muster.ClassCancelled, "third")
	if s := n.ended(task); s.Class != muster.ClassCancelled || s.Message != "third" {
		t.Errorf("ended as %+v", s)
	}
}

func TestMemoryAboveTheLimitIsClassOOM(t *testing.T) {
	n := newNode(t, false)
	if h := Host(n.config); !h.Limits {
		t.Logf("this host can't limit memory: %+v", h)
		return
	}
	task := n.task(`tail /dev/zero; echo "tail ended"; sleep 1000`)
	task.Memory = 64 * muster.MiB
	n.run(task)
	s := n.ended(task)
	if s.Class != muster.ClassOOM || s.ExitCode != 137 || s.Message != "killed at 64MiB of 64MiB memory: raise memory" || s.Peak != 64*muster.MiB {
		t.Errorf("ended as %+v", s)
	}
	small := n.run(func() Task { t := n.task("true"); t.Memory = 64 * muster.MiB; return t }())
	if s := n.ended(small); s.Class != muster.ClassNone || s.Peak == 0 || s.Peak > 16*muster.MiB {
		t.Errorf("a small task ended as %+v", s)
	}
}

func TestRanksOfAJobShareTheirNamespace(t *testing.T) {
	n := newNode(t, false)
	if h := Host(n.config); !h.PidNamespace {
		t.Logf("this host has no pid namespaces for us: %+v", h)
		return
	}
	const script = `readlink /proc/self/ns/pid; echo $(ls /proc | grep -c '^[0-9]'); echo up; while ! test -e "$DIR/go"; do sleep 0.02; done; exec sleep 0.1`
	a, b, c := n.task(script), n.task(script), n.task(script)
	b.Job = a.Job
	for _, x := range []Task{a, b, c} {
		n.run(x)
		n.says(x, "up")
	}
	first := func(t Task) string { line, _, _ := strings.Cut(n.output(t), "\n"); return line }
	host, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	if first(a) != first(b) || first(a) == first(c) || first(a) == host {
		t.Errorf("namespaces: %s, %s of one job, %s of another; the host's is %s", first(a), first(b), first(c), host)
	}
	if seen := mustAtoi(t, strings.Split(n.output(c), "\n")[1]); seen > 6 {
		t.Errorf("a task sees %d processes", seen)
	}
	// The end of one rank ends its own processes only.
	n.stop(a, muster.StopKill, muster.ClassCancelled, "")
	n.ended(a)
	if err := os.WriteFile(filepath.Join(n.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s := n.ended(b); s.Class != muster.ClassNone {
		t.Errorf("the other rank ended as %+v", s)
	}
	n.ended(c)
	n.wantNothingLeft()
}

// Only root may enter any folder.
func TestAFolderThatMayNotBeEnteredIsNoPlaceToRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(dir, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkFolder(dir); os.Getuid() != 0 && !errors.Is(err, fs.ErrPermission) || os.Getuid() == 0 && err != nil {
		t.Errorf("as %d: %v", os.Getuid(), err)
	}
}
