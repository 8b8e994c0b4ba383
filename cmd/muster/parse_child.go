package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/wire"
)

// A job file that came by HTTP is read in a child process, which may use so much and no more: a server holds the queue in its
// memory, and a file is a program of sorts.
const (
	parseCPU    = 1                // seconds of CPU, whole ones: the system's unit
	parseMemory = 256 << 20        // bytes beyond what the program has when it begins
	parseWithin = 10 * time.Second // of time, on a machine that has other things to do
	parseAnswer = 16 << 20         // bytes of the answer
)

// parseVerb is what this program is called with to be that child.
const parseVerb = "parse-job-file"

// fileQuestion is what the child reads from its standard input.
type fileQuestion struct {
	Source    string            `json:"source"`
	Variables map[string]string `json:"variables"`
}

// fileAnswer is what it writes.
type fileAnswer struct {
	Specs       []byte                `json:"specs"` // a wire.SubmitRequest
	Diagnostics []wire.DiagnosticJSON `json:"diagnostics"`
}

func (a *app) parseCommand() *cobra.Command {
	return &cobra.Command{
		Use: parseVerb, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := limitSelf(); err != nil {
				return err
			}
			var question fileQuestion
			if err := json.NewDecoder(a.io.in).Decode(&question); err != nil {
				return err
			}
			answer, err := readFile(&question)
			if err != nil {
				return err
			}
			return json.NewEncoder(a.io.out).Encode(answer)
		},
	}
}

// readFile parses; a directory must be absolute, and no other file is read.
func readFile(q *fileQuestion) (*fileAnswer, error) {
	var options jobfile.Options
	for _, name := range slices.Sorted(maps.Keys(q.Variables)) {
		options.Vars = append(options.Vars, jobfile.Var{Name: name, Value: q.Variables[name], From: "variables"})
	}
	specs, diagnostics := jobfile.Parse(servedFile, []byte(q.Source), options)
	if diagnostics.HasErrors() {
		return &fileAnswer{Diagnostics: (&invalidFiles{diagnostics}).json()}, nil
	}
	request := &wire.SubmitRequest{}
	for _, spec := range specs {
		request.Specs = append(request.Specs, wire.JobSpecOf(spec))
	}
	body, err := proto.Marshal(request)
	return &fileAnswer{Specs: body}, err
}

// servedFile is what diagnostics call a file that came by HTTP.
const servedFile = "job.hcl"

// limitSelf takes away what a job file's reading doesn't need.
func limitSelf() error {
	debug.SetMemoryLimit(parseMemory / 2) // collects in time; what the system takes away is the end
	limits := map[int]uint64{syscall.RLIMIT_CPU: parseCPU, syscall.RLIMIT_FSIZE: 0, syscall.RLIMIT_CORE: 0}
	if size, known := addressSpace(); known {
		limits[syscall.RLIMIT_AS] = size + parseMemory
	}
	for what, most := range limits {
		if err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limit %d: %w", what, err)
		}
	}
	return nil
}

// addressSpace gives the bytes that this process has mapped, where the system tells.
func addressSpace() (uint64, bool) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	var pages uint64
	_, err = fmt.Sscan(string(text), &pages)
	return pages * uint64(os.Getpagesize()), err == nil
}

// parseAway reads a job file in a child process.
func parseAway(ctx context.Context, source string, variables map[string]string) ([]*muster.JobSpec, []wire.DiagnosticJSON, error) {
	return readAway(ctx, parseVerb, source, variables)
}

// readAway is parseAway with a child of that verb.
func readAway(ctx context.Context, verb, source string, variables map[string]string) ([]*muster.JobSpec, []wire.DiagnosticJSON, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	question, err := json.Marshal(fileQuestion{Source: source, Variables: variables})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, parseWithin)
	defer cancel()
	child := exec.CommandContext(ctx, binary, verb)
	child.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}
	child.Dir = "/"
	child.Stdin = bytes.NewReader(question)
	var out, errs bytes.Buffer
	child.Stdout, child.Stderr = &atMost{w: &out, left: parseAnswer}, &atMost{w: &errs, left: 4 << 10}
	child.WaitDelay = time.Second
	if err := child.Run(); err != nil {
		return nil, nil, parseFailure(ctx, err, errs.String())
	}
	var answer fileAnswer
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return nil, nil, fmt.Errorf("the reader of job files: %w", err)
	}
	if len(answer.Diagnostics) > 0 {
		return nil, answer.Diagnostics, nil
	}
	request := &wire.SubmitRequest{}
	if err := proto.Unmarshal(answer.Specs, request); err != nil {
		return nil, nil, fmt.Errorf("the reader of job files: %w", err)
	}
	var specs []*muster.JobSpec
	for _, p := range request.GetSpecs() {
		spec, err := p.Domain()
		if err != nil {
			return nil, nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil, nil
}

// parseFailure says why there is no answer: the limits that the file met, or a fault of muster's.
func parseFailure(ctx context.Context, err error, said string) error {
	status := exitStatus(err)
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return muster.Errorf(muster.KindUnavailable, "the job file could not be read within %s: this server is busy", muster.FormatDuration(parseWithin)).
			WithHint("Try again, or send the specs: muster validate -o json prints them")
	case ctx.Err() != nil:
		return ctx.Err()
	case status.Signaled() && (status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGXCPU):
		return muster.Errorf(muster.KindInvalid, "reading the job file took more than %d s of CPU", parseCPU).WithHint("Make it simpler: a job file is no program")
	case strings.Contains(said, "out of memory") || strings.Contains(said, "cannot allocate memory"),
		strings.Contains(said, "address space collisions"): // a runtime that can map no more; it says so under the race detector
		return muster.Errorf(muster.KindInvalid, "reading the job file took more than %s of memory", muster.Bytes(parseMemory)).
			WithHint("Make it simpler: a job file is no program")
	}
	first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return fmt.Errorf("the reader of job files ended: %w: %s", err, first)
}

// exitStatus is how a child ended; zero where that isn't known.
func exitStatus(err error) syscall.WaitStatus {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	status, _ := exit.Sys().(syscall.WaitStatus)
	return status
}

// atMost drops what is too much: an answer cut off is no JSON.
type atMost struct {
	w    io.Writer
	left int
}

func (a *atMost) Write(p []byte) (int, error) {
	n := min(len(p), a.left)
	a.left -= n
	if _, err := a.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}
