package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/wire"
)

// runFlags is what `run` takes over, or instead of, a file.
type runFlags struct {
	detach    bool
	wait      bool
	pend      bool
	hold      bool
	within    string // --start-within
	requestID string
	vars      varFlags
	file      jobfile.Options // --name, --queue, --priority, --time-limit

	gpus, ranks int
	cores       string
	memory      string
	gpuModel    []string
	env         []string
}

// laterRunFlags are of the contract, and not built yet.
var (
	laterRunFlags    = []string{"depends-on", "start-after", "image"}
	laterRunSwitches = []string{"interactive", "tty"}
)

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE|- | run [flags] -- CMD…",
		Short: "submit jobs and follow them: their state, their logs, their exit code",

		Annotations: map[string]string{carriesCode: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseLater(cmd, slices.Concat(laterRunFlags, laterRunSwitches)); err != nil {
				return err
			}
			jobs, err := a.runJobs(cmd, &f, args)
			if err != nil {
				return err
			}
			return a.submitAndFollow(cmd.Context(), &f, jobs)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(true)
	flags.BoolVarP(&f.detach, "detach", "d", false, "only submit; print the ids, one a line")
	flags.BoolVar(&f.wait, "wait", false, "follow without the logs")
	flags.BoolVar(&f.pend, "pend", false, "accept what can't fit now or ever")
	flags.BoolVar(&f.hold, "hold", false, "wait for a release before anything starts")
	flags.StringVar(&f.within, "start-within", "", "cancel what is not placed so soon, as in 10m; attached: with code 124")
	flags.StringVar(&f.requestID, "request-id", "", "submitted once, however often it is tried")
	f.vars.declare(flags)
	flags.StringVar(&f.file.Name, "name", "", "over the file: the job's name")
	flags.StringVarP(&f.file.Queue, "queue", "q", "", "over the file: the queue (MUSTER_QUEUE)")
	flags.String("priority", "", "over the file: 0 to 100")
	flags.String("time-limit", "", "over the file: of an attempt, as in 4h")
	flags.IntVar(&f.gpus, "gpus", 0, "with -- CMD: GPUs of each rank")
	flags.IntVar(&f.ranks, "ranks", 1, "with -- CMD: number of ranks")
	flags.StringVar(&f.cores, "cores", "", "with -- CMD: cores of each rank")
	flags.StringVar(&f.memory, "memory", "", "with -- CMD: memory of each rank, as in 64GiB")
	flags.StringSliceVar(&f.gpuModel, "gpu-model", nil, "with -- CMD: GPU models, any of")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "with -- CMD: NAME=VALUE, or NAME for the caller's own")
	a.formFlags(cmd)
	later(cmd, laterRunFlags)
	laterSwitch(cmd, laterRunSwitches)
	return cmd
}

// laterShort are the one-letter forms of flags that are not built yet.
var laterShort = map[string]string{"interactive": "i", "tty": "t", "label": "l"}

// later declares flags with a value that are refused when used.
func later(cmd *cobra.Command, names []string) {
	for _, name := range names {
		cmd.Flags().StringP(name, laterShort[name], "", "not supported yet")
		_ = cmd.Flags().MarkHidden(name) // it exists: declared above
	}
}

// laterSwitch declares flags without a value that are refused when used.
func laterSwitch(cmd *cobra.Command, names []string) {
	for _, name := range names {
		cmd.Flags().BoolP(name, laterShort[name], false, "not supported yet")
		_ = cmd.Flags().MarkHidden(name) // it exists: declared above
	}
}

func refuseLater(cmd *cobra.Command, names []string) error {
	for _, name := range names {
		if !cmd.Flags().Changed(name) {
			continue
		}
		if short := laterShort[name]; short != "" {
			return muster.Errorf(muster.KindUsage, "-%s is not supported yet", short)
		}
		return muster.Errorf(muster.KindUsage, "--%s is not supported yet", name)
	}
	return nil
}

// A submission is jobs, and the file that they came from: "" = none.
type submission struct {
	specs   []*muster.JobSpec
	file    string
	source  []byte
	options jobfile.Options // it was read with
}

// runJobs gives the jobs of the file, of standard input, or of the command behind "--".
func (a *app) runJobs(cmd *cobra.Command, f *runFlags, args []string) (*submission, error) {
	if f.file.Queue == "" {
		f.file.Queue = os.Getenv("MUSTER_QUEUE")
	}
	f.file.Priority, _ = cmd.Flags().GetString("priority")
	f.file.TimeLimit, _ = cmd.Flags().GetString("time-limit")
	if dash := cmd.ArgsLenAtDash(); dash == 0 && len(args) > 0 {
		spec, err := a.commandSpec(f, args)
		return &submission{specs: spec}, err
	} else if dash > 0 {
		return nil, muster.Errorf(muster.KindUsage, "a file and a command at once").WithHint("Say: muster run FILE, or muster run -- CMD…")
	}
	for _, name := range []string{"gpus", "ranks", "cores", "memory", "gpu-model", "env"} {
		if cmd.Flags().Changed(name) {
			return nil, muster.Errorf(muster.KindUsage, "--%s goes with a command: muster run --%s … -- CMD…", name, name)
		}
	}
	if len(args) != 1 {
		return nil, muster.Errorf(muster.KindUsage, "run takes one job file, or -- and a command").WithHint("Say: muster run FILE, or muster run -- CMD…")
	}
	if err := f.vars.read(&f.file); err != nil {
		return nil, err
	}
	return a.parseFile(args[0], f.file)
}

// parseFile reads a job file ("-": standard input) and prints what is wrong with it.
func (a *app) parseFile(path string, options jobfile.Options) (*submission, error) {
	source, name, err := readSource(a.io.in, path)
	if err != nil {
		return nil, err
	}
	if err := here(&options, path); err != nil {
		return nil, err
	}
	specs, diagnostics := jobfile.Parse(name, source, options)
	if a.wantsJSON() && diagnostics.HasErrors() {
		return nil, &invalidFiles{diagnostics}
	}
	if err := jobfile.WriteText(a.io.err, name, source, diagnostics, a.textWidth(), colours(a.io.err), options.VarFiles...); err != nil {
		return nil, err
	}
	if diagnostics.HasErrors() {
		return nil, alreadySaid{muster.KindInvalid}
	}
	return &submission{specs, name, source, options}, nil
}

// refused shows a server's refusal of a submission at its line of the file.
func (a *app) refused(jobs *submission, err error) error {
	var e *muster.Error
	if jobs.file == "" || a.wantsJSON() || !errors.As(err, &e) || e.Field == "" {
		return err
	}
	at := hcl.Diagnostics{jobfile.Diagnose(jobs.file, jobs.source, jobs.options, e)}
	if err := jobfile.WriteText(a.io.err, jobs.file, jobs.source, at, a.textWidth(), colours(a.io.err)); err != nil {
		return err
	}
	return alreadySaid{e.Kind}
}

// fileDir is the folder that a job file's relative paths are relative to.
func fileDir(path string) (string, error) {
	if path == "-" {
		return os.Getwd()
	}
	return filepath.Abs(filepath.Dir(path))
}

func readSource(in io.Reader, path string) (source []byte, name string, err error) {
	const limit = 1<<20 + 1 // one more than a job file may have: the parser says so
	if path == "-" {
		source, err = io.ReadAll(io.LimitReader(in, limit))
		return source, "standard input", err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, "", muster.Errorf(muster.KindNotFound, "%v", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return nil, "", muster.Errorf(muster.KindInvalid, "%s is a folder, not a job file", path)
	}
	source, err = io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return nil, "", muster.Errorf(muster.KindError, "%v", err)
	}
	return source, path, nil
}

// textWidth is the width that prose is wrapped at; 0: not at all, since no person reads it there.
func (a *app) textWidth() uint { return uint(width(a.io.err)) }

// commandSpec makes the job of `run -- CMD…`: one task, in the current folder.
func (a *app) commandSpec(f *runFlags, args []string) ([]*muster.JobSpec, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	name := f.file.Name
	if name == "" {
		name = jobName(args[0])
	}
	spec := muster.DefaultJobSpec()
	spec.Name = name
	if f.file.Queue != "" {
		spec.Queue = f.file.Queue
	}
	group := muster.DefaultGroup()
	task := &group.Task
	group.Count, task.Command, task.Args, task.Dir = f.ranks, muster.EscapeRuntime(args[0]), args[1:], muster.EscapeRuntime(dir)
	task.Resources = muster.Resources{GPUs: f.gpus, Models: f.gpuModel}
	if task.Resources.Memory, err = optional(f.memory, muster.ParseBytes); err != nil {
		return nil, muster.Errorf(muster.KindUsage, "--memory: %v", err)
	}
	if task.Resources.MilliCores, err = optional(f.cores, parseCores); err != nil {
		return nil, muster.Errorf(muster.KindUsage, "--cores: %v", err)
	}
	if spec.TimeLimit, err = optional(f.file.TimeLimit, muster.ParseDuration); err != nil {
		return nil, muster.Errorf(muster.KindUsage, "--time-limit: %v", err)
	}
	spec.PriorityOfQueue = f.file.Priority == ""
	if f.file.Priority != "" {
		if spec.Priority, err = strconv.Atoi(f.file.Priority); err != nil {
			return nil, muster.Errorf(muster.KindUsage, "--priority %q is not a number from 0 to 100", f.file.Priority)
		}
	}
	for _, pair := range f.env {
		key, value, given := strings.Cut(pair, "=")
		if !given {
			if value, given = os.LookupEnv(key); !given {
				return nil, muster.Errorf(muster.KindUsage, "-e %s: there is no such variable in your environment", key)
			}
		}
		task.Env = append(task.Env, muster.EnvVar{Name: key, Value: muster.EscapeRuntime(value)})
	}
	for i := range task.Args {
		task.Args[i] = muster.EscapeRuntime(task.Args[i])
	}
	spec.Groups = []muster.Group{group}
	spec.FillDefaults()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	return []*muster.JobSpec{&spec}, nil
}

func optional[T any](text string, parse func(string) (T, error)) (value T, err error) {
	if text == "" {
		return value, nil
	}
	return parse(text)
}

func parseCores(s string) (muster.MilliCores, error) {
	cores, err := strconv.ParseFloat(s, 64)
	if err != nil || !(cores > 0 && cores <= 1e6) {
		return 0, fmt.Errorf("%q is not a number of cores, as in 4 or 0.5", s)
	}
	return muster.MilliCores(cores*1000 + 0.5), nil
}

// jobName makes a job's name of a program's.
func jobName(program string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(filepath.Base(program)) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' && b.Len() > 0 {
			b.WriteRune(r)
		} else if b.Len() > 0 {
			b.WriteByte('-')
		}
	}
	name := b.String()
	if len(name) > 64 {
		name = name[:64]
	}
	if name = strings.Trim(name, "-"); name == "" {
		return "run"
	}
	return name
}

func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (a *app) submitAndFollow(ctx context.Context, f *runFlags, jobs *submission) error {
	client, err := a.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	within, err := optional(f.within, muster.ParseDuration)
	if err != nil {
		return muster.Errorf(muster.KindUsage, "--start-within: %v", err)
	}
	request := &wire.SubmitRequest{RequestId: f.requestID, Pend: f.pend, Hold: f.hold, StartWithin: int64(within)}
	if request.RequestId == "" {
		request.RequestId = newRequestID()
	}
	var names []string
	for _, spec := range jobs.specs {
		request.Specs = append(request.Specs, wire.JobSpecOf(spec))
		names = append(names, spec.Name)
	}
	reply, err := client.Submit(ctx, request)
	if err != nil {
		return a.refused(jobs, err)
	}
	for _, note := range reply.GetNotes() {
		fmt.Fprintln(a.io.err, note)
	}
	if f.detach {
		return a.printSubmitted(reply, names)
	}
	for _, note := range reply.GetNotes() {
		fmt.Fprintln(a.io.err, note)
	}
	return a.follow(ctx, client.Patiently(), refsOf(reply.GetIds()), !f.wait && len(jobs.specs) == 1)
}

func refsOf(ids []uint64) []*wire.JobRef {
	var refs []*wire.JobRef
	for _, id := range ids {
		refs = append(refs, &wire.JobRef{Id: id})
	}
	return refs
}
