// Command quality measures the scheduler on public traces: it runs `muster simulate`, has independent judges check and score what
// came out, and prints each number beside what was published and what muster holds itself to.
//
//	quality -shared DIR [-small] [-only REGEXP]
//
// DIR holds judge/ (the judges' Go module) and traces/. Exit status: 0 all valid, 1 something is not, 2 it could not be run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
)

// bench is where things are, and what was measured.
type bench struct {
	shared, work string
	small        bool
	slots        chan struct{} // programs at a time

	mu      sync.Mutex
	invalid []string
}

// parallel is how many simulations run at a time.
const parallel = 2

// score is what a judge says: numbers by name, of groups by "group/member/name".
type score map[string]float64

func main() {
	shared := flag.String("shared", "", "the folder of judge/ and traces/")
	small := flag.Bool("small", false, "few seeds, half a minute")
	only := flag.String("only", "", "a regular expression of the experiments' names")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *shared, *small, *only)
	stop()
	switch {
	case errors.Is(err, errInvalid):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(2)
	}
}

var errInvalid = errors.New("a judge found violations")

func run(ctx context.Context, shared string, small bool, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if shared, err = filepath.Abs(shared); err != nil {
		return err
	}
	for _, dir := range []string{"judge", "traces"} {
		if _, err := os.Stat(filepath.Join(shared, dir)); err != nil {
			return fmt.Errorf("-shared %s: %w", shared, err)
		}
	}
	work, err := os.MkdirTemp("", "muster-quality-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := &bench{shared: shared, work: work, small: small, slots: make(chan struct{}, parallel)}
	if err := b.build(ctx); err != nil {
		return err
	}
	var failed error
	for _, e := range experiments(small) {
		if !wanted.MatchString(e.name) {
			continue
		}
		lines, err := e.run(ctx, b)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", e.name, err))
			continue
		}
		fmt.Println(e.name)
		for _, l := range lines {
			fmt.Println("  " + l.String())
		}
	}
	for _, what := range b.invalid {
		fmt.Println("INVALID", what)
	}
	if failed == nil && len(b.invalid) > 0 {
		return errInvalid
	}
	return failed
}

// build makes muster and the judges.
func (b *bench) build(ctx context.Context) error {
	if _, err := b.command(ctx, "go", "build", "-tags", "hashicorpmetrics", "-o", b.path("muster"), "./cmd/muster"); err != nil {
		return err
	}
	_, err := b.command(ctx, "go", "build", "-C", filepath.Join(b.shared, "judge"), "-o", b.work+"/", "./cmd/...")
	return err
}

func (b *bench) path(name string) string { return filepath.Join(b.work, name) }

func (b *bench) trace(name string) string { return filepath.Join(b.shared, "traces", name) }

// write makes a file of the run.
func (b *bench) write(name, content string) (string, error) {
	path := b.path(name)
	return path, os.WriteFile(path, []byte(content), 0o600)
}

// command runs a program and gives what it prints; its errors end with what it said.
func (b *bench) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	b.slots <- struct{}{}
	defer func() { <-b.slots }()
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, fmt.Errorf("%s: %w: %s", filepath.Base(name), err, exit.Stderr)
	}
	return out, err
}

// judge runs a judge; what it finds wrong is remembered under the given name.
func (b *bench) judge(ctx context.Context, name, program string, args ...string) (score, error) {
	out, err := b.command(ctx, b.path(program), append(args, "-json")...)
	var raw map[string]any
	if json.Unmarshal(out, &raw) != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s := score{}
	flatten("", raw, s)
	if s["violations"] > 0 || raw["valid"] != true {
		b.mu.Lock()
		b.invalid = append(b.invalid, fmt.Sprintf("%s: %v violations: %v", name, s["violations"], err))
		b.mu.Unlock()
	}
	return s, nil
}

func flatten(prefix string, raw map[string]any, into score) {
	for name, value := range raw { // into a map: the order is nothing
		switch v := value.(type) {
		case float64:
			into[prefix+name] = v
		case map[string]any:
			flatten(prefix+name+"/", v, into)
		}
	}
}

// together runs functions at once and joins their errors; the programs that they run wait for a slot.
func together(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
