package exec

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func TestASupervisorThatIsKilledTakesItsTasksAlong(t *testing.T) {
	n := newNode(t, false)
	h := Host(n.config)
	task := n.run(n.task(`(setsid sleep 1000 >/dev/null 2>&1 &); echo up; sleep 1000`))
	n.says(task, "up")
	if len(n.left()) < 3 {
		t.Fatalf("it does not run: %v", n.left())
	}
	if err := syscall.Kill(n.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-n.Done()
	began := time.Now()
	if h.Fencing == "strong" {
		eventually(t, "the tree of a killed supervisor is gone", func() bool { return len(n.left()) == 0 })
		if took := time.Since(began); took > time.Second {
			t.Errorf("the tree lived on for %s", took)
		}
	}
	if _, err := KillStale(context.Background(), n.config); err != nil {
		t.Fatal(err)
	}
	n.wantNothingLeft()
	if exits := ReadExits(n.config.StateDir); len(exits) != 0 {
		t.Errorf("an exit that nobody saw: %v", exits)
	}
	// The log is whole as far as it goes, and whoever follows it ends when the agent closes it.
	if err := CloseLog(task.LogDir); err != nil {
		t.Fatal(err)
	}
	if out := n.output(task); out != "up\n" {
		t.Errorf("the log has %q", out)
	}
	n.start() // a new one comes up in the same place
	n.ended(n.run(n.task("true")))
}

func TestWhatADeadSupervisorLeavesIsKilledAtTheAgentsStart(t *testing.T) {
	n := newNode(t, true) // without namespaces its tasks' children outlive it
	other := newNode(t, true)
	stays := other.run(other.task(`echo up; sleep 1000`))
	other.says(stays, "up")
	task := n.run(n.task(`(setsid sleep 1000 >/dev/null 2>&1 &); echo up; sleep 1000`))
	n.says(task, "up")
	if err := syscall.Kill(n.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-n.Done()
	killed, err := KillStale(context.Background(), n.config)
	if err != nil || killed == 0 {
		t.Errorf("killed %d, %v", killed, err)
	}
	n.wantNothingLeft()
	if len(other.left()) == 0 {
		t.Error("another node's task was killed too")
	}
}

func TestATaskOutlivesTheAgentAndIsTakenOver(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.run(n.task(`echo up; while ! test -e "$DIR/go"; do sleep 0.02; done; exit 5`))
		n.says(task, "up")
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		<-n.Done()
		again, err := DialSupervisor(n.config.RunDir)
		if err != nil {
			t.Fatal(err)
		}
		list, err := again.List(context.Background())
		if err != nil || len(list) != 1 || list[0].Phase != muster.AllocRunning || list[0].Alloc != task.Alloc {
			t.Fatalf("the supervisor has %+v, %v", list, err)
		}
		if p, ok := readProcess(list[0].Pid); !ok || p.start != list[0].PidStart {
			t.Errorf("process %d is %+v", list[0].Pid, p)
		}
		again.Close() // the agent dies again, and the task ends meanwhile
		if err := os.WriteFile(filepath.Join(n.dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the exit is on disk", func() bool { return len(ReadExits(n.config.StateDir)) == 1 })
		n.start()
		eventually(t, "the supervisor says so", func() bool {
			list, err = n.List(context.Background())
			return err == nil && len(list) == 1 && list[0].Phase == muster.AllocEnded
		})
		if list[0].ExitCode != 5 || list[0].Class != muster.ClassExit {
			t.Errorf("ended as %+v", list[0])
		}
		if err := n.Forget(context.Background(), []muster.AllocID{task.Alloc}); err != nil {
			t.Fatal(err)
		}
		if list, err = n.List(context.Background()); err != nil || len(list) != 0 || len(ReadExits(n.config.StateDir)) != 0 {
			t.Errorf("it was not forgotten: %v %v %v", list, err, ReadExits(n.config.StateDir))
		}
	})
}

func TestAnExitIsKnownAfterTheSupervisorsDeath(t *testing.T) {
	n := newNode(t, false)
	task := n.run(n.task(`exit 6`))
	n.ended(task)
	if err := syscall.Kill(n.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-n.Done()
	exits := ReadExits(n.config.StateDir)
	if len(exits) != 1 || exits[0].Alloc != task.Alloc || exits[0].ExitCode != 6 || exits[0].Class != muster.ClassExit {
		t.Fatalf("on disk: %+v", exits)
	}
	n.start()
	if err := n.Prepare(context.Background(), task); muster.KindOf(err) != muster.KindConflict {
		t.Errorf("a second life was prepared: %v", err)
	}
	if err := ForgetExits(n.config.StateDir, []muster.AllocID{task.Alloc}); err != nil || len(ReadExits(n.config.StateDir)) != 0 {
		t.Errorf("not forgotten: %v", err)
	}
}

func TestARunningTaskIsNotForgottenAndASupervisorWithOneDoesNotQuit(t *testing.T) {
	n := newNode(t, false)
	task := n.run(n.task(`sleep 1000`))
	if err := n.Forget(context.Background(), []muster.AllocID{task.Alloc}); muster.KindOf(err) != muster.KindConflict && err == nil {
		t.Errorf("Forget gave %v", err)
	}
	if err := n.Quit(context.Background()); muster.KindOf(err) != muster.KindConflict {
		t.Errorf("Quit gave %v", err)
	}
	n.stop(task, muster.StopKill, muster.ClassCancelled, "")
	n.ended(task)
	if err := n.Quit(context.Background()); err != nil {
		t.Errorf("Quit gave %v", err)
	}
	<-n.Done()
	eventually(t, "its socket is closed", func() bool {
		_, err := DialSupervisor(n.config.RunDir)
		return NoSupervisor(err)
	})
	if g, err := findCgroups(mustFill(t, n.config), identity{}); err == nil {
		eventually(t, "its cgroups are gone", func() bool {
			return !slices.ContainsFunc(g.mounts(), func(mount string) bool {
				_, err := os.Stat(filepath.Join(mount, g.instance))
				return err == nil
			})
		})
	}
}

func mustFill(t *testing.T, c SupervisorConfig) SupervisorConfig {
	t.Helper()
	c, err := c.filled()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestASilentSupervisorsTaskIsKilledPastIt(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.run(n.task(`(setsid sleep 1000 >/dev/null 2>&1 &); echo up; trap '' TERM; sleep 1000`))
		n.says(task, "up")
		if err := syscall.Kill(n.Pid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := KillAlloc(ctx, n.config, task.Alloc)
		if err := syscall.Kill(n.Pid(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := n.ended(task); s.Signal != int(syscall.SIGKILL) {
			t.Errorf("ended as %+v", s)
		}
		n.wantNothingLeft()
	})
}

func TestThereIsOneSupervisorInARunDirectory(t *testing.T) {
	n := newNode(t, false)
	c := n.config
	if err := Supervise(context.Background(), c); muster.KindOf(err) != muster.KindConflict {
		t.Errorf("a second one gave %v", err)
	}
	pid := n.Pid()
	n.Close()
	n.start()
	if n.Pid() != pid {
		t.Errorf("another one was started: %d beside %d", n.Pid(), pid)
	}
	info, err := os.Stat(c.RunDir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the run directory is open: %v, %v", info.Mode(), err)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	n := newNode(t, false)
	for name, change := range map[string]func(*Task){
		"signal":  func(t *Task) { t.KillSignal = "SIGNONE" },
		"command": func(t *Task) { t.Argv = nil },
		"number":  func(t *Task) { t.Alloc = muster.AllocID{} },
		"path":    func(t *Task) { t.TaskDir = "here" },
	} {
		task := n.task("true")
		change(&task)
		if err := n.Prepare(context.Background(), task); muster.KindOf(err) != muster.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := n.Start(context.Background(), muster.AllocID{Epoch: 9, Counter: 9}); muster.KindOf(err) != muster.KindNotFound {
		t.Errorf("Start of an unknown one gave %v", err)
	}
	if _, err := ParseSignal("usr1"); err == nil || err.Error() != `signal "usr1" is written SIGUSR1` {
		t.Errorf("ParseSignal gave %v", err)
	}
	c := n.config
	c.RunDir = "/" + strings.Repeat("x", 120)
	if err := Supervise(context.Background(), c); muster.KindOf(err) != muster.KindUsage {
		t.Errorf("a long run directory gave %v", err)
	}
	if _, err := DialSupervisor(filepath.Join(n.dir, "nowhere")); !NoSupervisor(err) {
		t.Errorf("dialling nobody gave %v", err)
	}
	if _, err := StartSupervisor("/bin/false", filepath.Join(n.dir, "r2"), SupervisorConfig{}); err == nil ||
		!strings.Contains(err.Error(), "ended at once") {
		t.Errorf("a supervisor that ends gave %v", err)
	}
}

func TestManyTasksAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		const count = 40
		var tasks []Task
		errs := make(chan error, count)
		for i := range count {
			task := n.task(`(setsid sleep 1000 >/dev/null 2>&1 &); sleep 0.2; exit 3`)
			if i%4 == 1 {
				task.Argv[2] = `trap '' TERM; sleep 1000`
				task.KillTimeout = 100 * time.Millisecond
			}
			task.Job = muster.JobID(1 + i/4) // four ranks a job
			tasks = append(tasks, task)
			go func() {
				err := n.Prepare(context.Background(), task)
				if err == nil {
					err = n.Start(context.Background(), task.Alloc)
				}
				if err == nil && i%4 == 1 {
					err = n.Stop(context.Background(), task.Alloc, muster.Stop{Mode: muster.StopTerm, Class: muster.ClassPreempted})
				}
				errs <- err
			}()
		}
		for range count {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		for i, task := range tasks {
			s := n.ended(task)
			if stopped := i%4 == 1; stopped && s.Class != muster.ClassPreempted || !stopped && s.ExitCode != 3 {
				t.Errorf("%d ended as %+v", i, s)
			}
		}
		n.wantNothingLeft()
		if exits := ReadExits(n.config.StateDir); len(exits) != count {
			t.Errorf("%d exits on disk", len(exits))
		}
	})
}
