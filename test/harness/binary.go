// Package harness starts clusters for tests: real processes, real disks, real sockets, all in the test's own folder.
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Binary builds muster once for the whole test binary, with the race detector when the test has it, and gives its path.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	built.Store(true)
	return path
}

var built atomic.Bool

var build = sync.OnceValues(func() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(here)))
	dir, err := os.MkdirTemp("", "muster-test-bin-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "muster")
	args := []string{"build", "-tags", "hashicorpmetrics", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	command := exec.Command("go", append(args, "./cmd/muster")...)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/muster: %w\n%s", err, output)
	}
	return path, nil
})

// Cleanup removes the binary; TestMain calls it at the end.
func Cleanup() {
	if !built.Load() {
		return
	}
	if path, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
}
