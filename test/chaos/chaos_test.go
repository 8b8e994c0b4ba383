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

// readPast reads what a failed run has left in a folder.
func readPast(dir string) (*check.History, error) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join("../..", dir) // make runs at the top
	}
	f, err := os.Open(filepath.Join(dir, "evidence", "history.jsonl"))
	if err != nil {
		const hint = "EVIDENCE is the folder that a failed run names at its end, as in make chaos EVIDENCE=/tmp/mc-1619066309"
		switch _, begun := os.Stat(filepath.Join(dir, "evidence", "calls.jsonl")); {
		case begun == nil:
			return nil, fmt.Errorf("%s: that run did not come to its end, so there is nothing to judge; its logs and calls are there to be read, "+
				"and its plan can be run again with the seed that it printed", dir)
		default:
			return nil, fmt.Errorf("%s holds no evidence of a run (%w): %s", dir, err, hint)
		}
	}
	defer f.Close()
	h := new(check.History)
	return h, h.Read(f)
}

// settings are the environment's: DURATION of the faults, SEED, FAULTS (a list of kinds; "none").
type settings struct {
	seed     uint64
	duration time.Duration
	faults   []string
	steps    []Step // nil: drawn from the seed
	story    string // the test that made the steps
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
	race := ""
	if os.Getenv("RACE") != "" {
		race = " RACE=1"
	}
	if s.steps != nil {
		return "make chaos RUN=" + s.story + race
	}
	return fmt.Sprintf("make chaos SEED=%d DURATION=%s FAULTS=%s%s", s.seed, s.duration, strings.Join(s.faults, ","), race)
}

// TestChaos runs a cluster under faults, and judges what all that took part wrote down.
func TestChaos(t *testing.T) {
	if past := os.Getenv("EVIDENCE"); past != "" {
		judgePast(t, past)
		return
	}
	start(t, readSettings(t))
}

// tell does to a cluster, step by step, what a story says.
func tell(t *testing.T, steps ...Step) {
	t.Helper()
	start(t, settings{seed: 1, steps: steps, story: t.Name()})
}

// start makes a world, and does to it what the settings say.
func start(t *testing.T, s settings) {
	t.Helper()
	able(t)
	dir, err := os.MkdirTemp("", "mc-") // short: sockets live below it
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), makeFolders(dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the evidence is in %s\n    to judge it again:  make chaos EVIDENCE=%s\n    to replay the plan: %s", dir, dir, s.replay())
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
	h, err := readPast(dir)
	if err != nil {
		t.Fatal(err)
	}
	report := check.All(h)
	t.Logf("\n%s", report)
	if n := len(report.Violations); n > 0 {
		t.Errorf("%d violations", n)
	}
}
