//go:build chaos

package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/chaos/check"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(initVariable); file != "" {
		if err := beInit(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// build builds muster with the faults in it.
func build(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "muster")
	args := []string{"build", "-tags", "hashicorpmetrics,chaos", "-o", path}
	if os.Getenv("RACE") != "" {
		args = append(args, "-race")
	}
	command := exec.Command("go", append(args, "./cmd/muster")...)
	command.Dir = "../.."
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/muster: %v\n%s", err, output)
	}
	return path
}

// settings are the environment's: DURATION of the faults, SEED, FAULTS (a list of kinds; "none").
type settings struct {
	seed     uint64
	duration time.Duration
	faults   []string
	steps    []Step // nil: drawn from the seed
}

func readSettings(t *testing.T) settings {
	t.Helper()
	s := settings{seed: uint64(time.Now().UnixNano() % 1_000_000), duration: 10 * time.Minute, faults: kinds()}
	var err error
	if text := os.Getenv("SEED"); text != "" {
		if s.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SEED=%s is no number", text)
		}
	}
	if text := os.Getenv("DURATION"); text != "" {
		if s.duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("DURATION: %v", err)
		}
	}
	if text := os.Getenv("FAULTS"); text != "" {
		s.faults = strings.Split(text, ",")
		for _, name := range s.faults {
			if name != "none" && !slices.Contains(kinds(), name) {
				t.Fatalf("FAULTS: %q is none of %s", name, strings.Join(kinds(), ", "))
			}
		}
	}
	return s
}

func (s settings) replay() string {
	return fmt.Sprintf("make chaos SEED=%d DURATION=%s FAULTS=%s", s.seed, s.duration, strings.Join(s.faults, ","))
}

// TestChaos runs a cluster under faults, and judges what all that took part wrote down.
func TestChaos(t *testing.T) {
	if past := os.Getenv("EVIDENCE"); past != "" {
		judgePast(t, past)
		return
	}
	start(t, readSettings(t))
}

// start makes a world, and does to it what the settings say.
func start(t *testing.T, s settings) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this needs root: machines are namespaces")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Fatalf("this needs tun devices, of which the network is made: %v", err)
	}
	dir, err := os.MkdirTemp("", "mc-") // short: sockets live below it
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), makeFolders(dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the evidence is in %s; to judge it again: make chaos EVIDENCE=%s; to replay the plan: %s", dir, dir, s.replay())
		} else {
			os.RemoveAll(dir)
		}
	})
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &run{t: t, settings: s, dir: dir, began: now()}
	r.execute(ctx, build(t, dir))
}

// judgePast judges the evidence of an earlier run again.
func judgePast(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "evidence", "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var h check.History
	if err := h.Read(f); err != nil {
		t.Fatal(err)
	}
	report := check.All(&h)
	t.Logf("\n%s", report)
	if n := len(report.Violations); n > 0 {
		t.Errorf("%d violations", n)
	}
}
