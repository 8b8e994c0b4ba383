package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func TestTwoDevClustersDoNotShareADirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := takePlace(filepath.Join(dir, "d"), 3, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takePlace(filepath.Join(dir, "d"), 3, io.Discard); muster.KindOf(err) != muster.KindConflict || !strings.Contains(err.Error(), "another muster dev") {
		t.Errorf("a second one: %v", err)
	}
	first.leave()
	again, err := takePlace(filepath.Join(dir, "d"), 3, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	again.leave()
}

func TestAnAddressThatIsTakenIsSaidBeforeAnythingStarts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := devPortFree(l.Addr().String()); muster.KindOf(err) != muster.KindConflict || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Error(err)
	}
	if err := devPortFree(""); err != nil {
		t.Error(err)
	}
}

// What kill -9 of a muster dev leaves behind: the next command says so, and the next muster dev clears it away.
func TestAKilledDevClusterIsToldAndClearedAway(t *testing.T) {
	home, err := os.MkdirTemp("", "mk-") // short: sockets live below it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	environment := append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, ".config"), "TMPDIR="+home, "MUSTER_ADDR=", "MUSTER_CONTEXT=")
	ask := func(args ...string) (string, int) {
		command := exec.Command("muster", args...)
		command.Env = environment
		said, _ := command.CombinedOutput()
		return string(said), command.ProcessState.ExitCode()
	}
	start := func() (dev *exec.Cmd, said *bytes.Buffer) {
		dev, said = exec.Command("muster", "dev", "--servers", "1", "--workers", "1"), new(bytes.Buffer)
		dev.Env, dev.Stderr = environment, said
		if err := dev.Start(); err != nil {
			t.Fatal(err)
		}
		late, tick := time.After(60*time.Second), time.NewTicker(50*time.Millisecond)
		defer tick.Stop()
		for {
			if _, code := ask("ps"); code == 0 {
				return dev, said
			}
			select {
			case <-tick.C:
			case <-late:
				_ = dev.Process.Kill()
				t.Fatal("muster dev isn't ready")
			}
		}
	}
	first, _ := start()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	late := time.After(20 * time.Second)
	for { // its children end with it, each in its own time
		said, code := ask("ps")
		if code == 7 && strings.Contains(said, "was killed") && strings.Contains(said, "muster dev") {
			break
		}
		select {
		case <-late:
			t.Fatalf("%d %s", code, said)
		default:
		}
	}
	left, _ := filepath.Glob(filepath.Join(home, devDirPrefix+"*"))
	if len(left) != 1 {
		t.Fatalf("%v", left)
	}
	second, said := start()
	_ = second.Process.Signal(syscall.SIGTERM)
	if err := second.Wait(); err != nil {
		t.Errorf("%v %s", err, said)
	}
	if !strings.Contains(said.String(), "clearing up") {
		t.Errorf("it says %s", said)
	}
	if left, _ := filepath.Glob(filepath.Join(home, devDirPrefix+"*")); len(left) != 0 {
		t.Errorf("%v stays behind", left)
	}
	if said, code := ask("ps"); code != 7 || !strings.Contains(said, "no cluster configured") {
		t.Errorf("after an end in order: %d %s", code, said)
	}
}
