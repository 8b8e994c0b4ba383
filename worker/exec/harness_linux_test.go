package exec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

// The test binary is the supervisor too, as the product's is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		if err := SuperviseArgs(context.Background(), os.Args[2:], os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const patience = 20 * time.Second

// node is a machine with one supervisor, and what an agent knows of it.
type node struct {
	t      testing.TB
	dir    string
	config SupervisorConfig
	*Supervisor
	seen map[muster.AllocID]Status
	next uint64
}

// newNode starts a supervisor; plain: as on a host without namespaces and cgroups.
func newNode(t testing.TB, plain bool) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, seen: map[muster.AllocID]Status{}}
	n.config = SupervisorConfig{RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Node: "gpu-07", Plain: plain}
	t.Cleanup(func() {
		if n.Supervisor != nil {
			n.Supervisor.Close()
		}
		if s, err := DialSupervisor(n.config.RunDir); err == nil {
			_ = syscall.Kill(s.Pid(), syscall.SIGKILL)
			<-s.Done()
			s.Close()
		}
		if _, err := KillStale(context.Background(), n.config); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(n.config.RunDir, "supervisor.log"))
			t.Logf("supervisor's log:\n%s", log)
		}
		os.RemoveAll(dir)
	})
	n.start()
	return n
}

func (n *node) start() {
	n.t.Helper()
	binary, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	n.Supervisor, err = StartSupervisor(binary, n.config.RunDir, n.config)
	if err != nil {
		n.t.Fatal(err)
	}
}

// task describes a task that runs sh -c script.
func (n *node) task(script string) Task {
	n.next++
	id := muster.AllocID{Epoch: 1, Counter: n.next}
	dir := filepath.Join(n.dir, id.String())
	return Task{
		Alloc: id, Job: muster.JobID(n.next), Attempt: 1, Argv: []string{"/bin/sh", "-c", script},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "DIR=" + n.dir}, TaskDir: filepath.Join(dir, "task"),
		LogDir: filepath.Join(dir, "logs"), StopFile: filepath.Join(dir, "stop"), KillTimeout: 5 * time.Second,
	}
}

func (n *node) run(t Task) Task {
	n.t.Helper()
	if err := n.Prepare(context.Background(), t); err != nil {
		n.t.Fatal(err)
	}
	if err := n.Start(context.Background(), t.Alloc); err != nil {
		n.t.Fatal(err)
	}
	return t
}

// until takes events until ok holds for the allocation.
func (n *node) until(t Task, what string, ok func(Status) bool) Status {
	n.t.Helper()
	deadline := time.After(patience)
	for {
		if s, known := n.seen[t.Alloc]; known && ok(s) {
			return s
		}
		select {
		case s, open := <-n.Events():
			if !open {
				n.t.Fatalf("the supervisor was lost while waiting for %s until %s", t.Alloc, what)
			}
			n.seen[s.Alloc] = s
		case <-deadline:
			n.t.Fatalf("%s was not %s in time; last seen: %+v", t.Alloc, what, n.seen[t.Alloc])
		}
	}
}

func (n *node) ended(t Task) Status {
	n.t.Helper()
	return n.until(t, "ended", func(s Status) bool { return s.Phase == muster.AllocEnded })
}

// says waits until the task has printed text.
func (n *node) says(t Task, text string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := OpenLog(t.LogDir, LogFrom{}, true)
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	all := ""
	for !strings.Contains(all, text) {
		record, err := r.Next(ctx)
		if err != nil {
			n.t.Fatalf("waiting for %q, the log has %q: %v", text, all, err)
		}
		all += string(record.Data)
	}
}

// output is all that the task has printed.
func (n *node) output(t Task) string {
	n.t.Helper()
	r, err := OpenLog(t.LogDir, LogFrom{}, false)
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	all := ""
	for {
		record, err := r.Next(context.Background())
		if err != nil {
			return all
		}
		all += string(record.Data)
	}
}

func (n *node) stop(t Task, mode muster.StopMode, class muster.Class, reason string) {
	n.t.Helper()
	if err := n.Stop(context.Background(), t.Alloc, muster.Stop{Mode: mode, Class: class, Reason: reason}); err != nil {
		n.t.Fatal(err)
	}
}

// left lists the processes of the machine whose environment names the directory of this test.
func (n *node) left() []process {
	var list []process
	for _, p := range processes() {
		if p.pid == os.Getpid() {
			continue
		}
		if value, ok := environ(p.pid, "DIR"); ok && value == n.dir {
			list = append(list, p)
		}
	}
	return list
}

func (n *node) wantNothingLeft() {
	n.t.Helper()
	if list := n.left(); len(list) > 0 {
		n.t.Errorf("left over: %s", named(list))
	}
}

// eventually looks again and again until ok, for what no event tells of.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		<-ticker.C
	}
}

func fileLine(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func mustAtoi(t testing.TB, s string) int {
	t.Helper()
	i, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// everywhere runs a story on a host with all abilities that this one has, and on one with none.
func everywhere(t *testing.T, story func(t *testing.T, n *node)) {
	t.Run("isolated", func(t *testing.T) { story(t, newNode(t, false)) })
	t.Run("plain", func(t *testing.T) { story(t, newNode(t, true)) })
}

// statFields are the fields of /proc/PID/stat behind the name.
func statFields(t testing.TB, pid int) []string {
	t.Helper()
	line := fileLine(t, fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
}
