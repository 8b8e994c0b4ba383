package exec

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

// A daemon that took its marks off, left its session and whose parents are gone is found all the same, beside a task that goes on.
func TestADaemonWithoutMarksEndsWithItsTaskOnAWeakHost(t *testing.T) {
	n := newNode(t, true)
	other := n.run(n.task("echo up; sleep 1000"))
	n.says(other, "up")
	daemon := func(name string) string {
		return `(env -i setsid sh -c 'echo $$ > "$0".new; mv "$0".new "$0"; exec sleep 1000' "$DIR/` + name + `" >/dev/null 2>&1 &)
			while ! test -e "$DIR/` + name + `"; do sleep 0.02; done; `
	}
	gone := func(name string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(n.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		if p, alive := readProcess(pid); alive {
			t.Errorf("the daemon lives on: %s", &p)
		}
	}
	ended := n.run(n.task(daemon("ended")))
	if s := n.ended(ended); s.Class != muster.ClassNone {
		t.Errorf("ended as %+v", s)
	}
	gone("ended")

	killed := n.run(n.task(daemon("killed") + "echo up; sleep 1000"))
	n.says(killed, "up")
	n.stop(killed, muster.StopKill, muster.ClassCancelled, "")
	n.ended(killed)
	gone("killed")

	// Past a supervisor that doesn't answer.
	silent := n.run(n.task(daemon("silent") + "echo up; sleep 1000"))
	n.says(silent, "up")
	if err := syscall.Kill(n.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := KillAlloc(ctx, n.config, silent.Alloc)
	if err := errors.Join(err, syscall.Kill(n.Pid(), syscall.SIGCONT)); err != nil {
		t.Error(err)
	}
	gone("silent")
	n.ended(silent)
	if s := n.seen[other.Alloc]; s.Phase == muster.AllocEnded || !s.Ended.Equal(time.Time{}) {
		t.Errorf("the other task: %+v", s)
	}
}
