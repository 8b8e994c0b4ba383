package exec

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// An agent that nohup or a service manager started has files and signals of theirs. Tasks get none of that.
func TestATaskInheritsNeitherFilesNorIgnoredSignals(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/of-a-service-manager")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	leaked, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD, 100) // not closed on exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leaked)
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	everywhere(t, func(t *testing.T, n *node) {
		task := n.run(n.task("ls -l /proc/self/fd; grep SigIgn: /proc/self/status"))
		n.ended(task)
		out := n.output(task)
		if strings.Contains(out, "of-a-service-manager") || strings.Count(out, " -> ") != 4 { // 3 is what ls itself opens
			t.Errorf("it has open\n%s", out)
		}
		if !strings.Contains(out, "SigIgn:\t0000000000000000\n") {
			t.Errorf("it ignores signals\n%s", out)
		}
	})
}
