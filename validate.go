package muster

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The limits of a spec.
const (
	MaxSpecSize      = 256 << 10 // bytes of all its text, and a little for each field
	MaxRanks         = 10_000    // of a gang
	MaxRetryAttempts = 10_000
	MaxLogFiles      = 1000
	MaxJobs          = 10_000 // of one submission
)

// Signals are the names that kill_signal and checkpoint.signal may have. SIGSTOP and its like are not among them: a stopped
// process neither saves itself nor ends.
var Signals = []string{
	"SIGHUP", "SIGINT", "SIGQUIT", "SIGABRT", "SIGALRM", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGURG", "SIGXCPU", "SIGIO",
	"SIGPWR", "SIGWINCH", "SIGKILL",
}

var (
	namePattern  = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,62}[a-z0-9])?$`)
	queuePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}(/[A-Za-z0-9][A-Za-z0-9_-]{0,62})*$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?$`)
	envPattern   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// ValidName says whether name may be the name of a job, group or task: it begins with a letter, so that a number is always an id.
func ValidName(name string) bool { return namePattern.MatchString(name) }

// ValidLabelKey says whether key may be the key of a label of a job or node.
func ValidLabelKey(key string) bool { return labelPattern.MatchString(key) }

// Validate says the first thing that is wrong with a spec whose defaults are filled in, or nil. The error is of KindInvalid, and
// its Field is a path in the job file's words, for whoever knows where in a file that stands:
//
//	name  type  queue  priority  time_limit  labels.KEY
//	groups[i].name  .count  .within  .prefer  .patience  .mixed_models  .preemptible
//	groups[i].constraint[j].attribute (.operator, .value)  .affinity[j].attribute (.value, .weight)  .spread[j].attribute
//	groups[i].retry.attempts (.on, .exit_codes[k], .delay, .max_delay)
//	groups[i].checkpoint.grace (.signal, .to, .every)  groups[i].disconnect.stop_after (.replace)
//	groups[i].task.name  .script  .command  .args[k]  .start  .dir  .env.NAME  .env_from_file[k]  .upload[k]
//	groups[i].task.kill_signal  .kill_timeout  .success_codes[k]  .logs.max_size (.max_files, .path)
//	groups[i].task.resources.gpus (.cores, .memory, .disk, .exclusive, .gpu.model, .gpu.min_memory, .gpu.share, .gpu.mig)
//
// groups[i] is there for a job without group blocks too; nothing stands before it, and "" means the job as a whole.
func (s *JobSpec) Validate() *Error {
	v := &validator{}
	s.validate(v)
	return v.err
}

// A validator keeps the first mistake.
type validator struct{ err *Error }

// fail records a mistake at field; hint may be "".
func (v *validator) fail(field, hint, format string, args ...any) {
	if v.err == nil {
		v.err = &Error{Kind: KindInvalid, Message: fmt.Sprintf(format, args...), Hint: hint, Field: field}
	}
}

const nameHint = "A name is at most 64 small letters, digits and dashes; it begins with a letter and does not end with a dash"

func (s *JobSpec) validate(v *validator) {
	if !ValidName(s.Name) {
		v.fail("name", nameHint, "%q can't be the name of a job", s.Name)
	}
	if s.Type != Batch {
		v.fail("type", `Leave it out, or say type = "batch"`, "this type of job is not supported yet")
	}
	if !queuePattern.MatchString(s.Queue) {
		v.fail("queue", "", "%q can't be the name of a queue", s.Queue)
	}
	if s.Priority < 0 || s.Priority > MaxPriority {
		v.fail("priority", "", "priority %d is not between 0 and %d", s.Priority, MaxPriority)
	}
	if s.TimeLimit < 0 {
		v.fail("time_limit", "", "time_limit is negative")
	}
	for i, l := range s.Labels {
		field := "labels." + l.Key
		if !ValidLabelKey(l.Key) {
			v.fail(field, "A key is at most 63 letters, digits and _ . / -, and begins with a letter", "%q can't be the key of a label", l.Key)
		}
		v.text(field, l.Value)
		if i > 0 && s.Labels[i-1].Key == l.Key {
			v.fail(field, "", "label %q is given twice", l.Key)
		}
	}
	if len(s.Groups) == 0 {
		v.fail("", "Add a task block", "job %q has no task", s.Name)
	}
	ranks := 0
	for i := range s.Groups {
		at := fmt.Sprintf("groups[%d]", i)
		g := &s.Groups[i]
		g.validate(v, at)
		if slices.ContainsFunc(s.Groups[:i], func(other Group) bool { return other.Name == g.Name }) {
			v.fail(at+".name", "", "two groups have the name %q", g.Name)
		}
		if ranks += g.Count; ranks > MaxRanks {
			v.fail(at+".count", "", "the job has %d ranks, and a gang has at most %d", ranks, MaxRanks)
		}
	}
	for _, err := range s.Unbuilt() {
		v.fail(err.Field, err.Hint, "%s", err.Message)
	}
	if size := s.Size(); size > MaxSpecSize {
		v.fail("", "Put long texts into files that the task reads", "the job is %d KiB large, at most %d KiB are allowed", size>>10, MaxSpecSize>>10)
	}
}

func (g *Group) validate(v *validator, at string) {
	if !ValidName(g.Name) {
		v.fail(at+".name", nameHint, "%q can't be the name of a group", g.Name)
	}
	if g.Count < 1 || g.Count > MaxRanks {
		v.fail(at+".count", "", "count %d is not between 1 and %d", g.Count, MaxRanks)
	}
	g.validateWishes(v, at)
	for j := range g.Constraints {
		g.Constraints[j].validate(v, fmt.Sprintf("%s.constraint[%d]", at, j))
	}
	g.Retry.validate(v, at+".retry", g.Task.SuccessCodes)
	if g.Checkpoint.Grace < 0 {
		v.fail(at+".checkpoint.grace", "", "grace is negative")
	}
	if g.Checkpoint.Signal != "" {
		v.signal(at+".checkpoint.signal", g.Checkpoint.Signal)
		if g.Checkpoint.Signal == "SIGKILL" {
			v.fail(at+".checkpoint.signal", "Say SIGUSR1 or SIGUSR2", "after SIGKILL no process can save itself")
		}
	}
	if g.Checkpoint.To > ToAll {
		v.fail(at+".checkpoint.to", `Say "main" or "all"`, "the target of the checkpoint signal is not known")
	}
	if g.Disconnect.StopAfter < MinLease {
		v.fail(at+".disconnect.stop_after", "", "stop_after %s is less than %s", FormatDuration(max(g.Disconnect.StopAfter, 0)), FormatDuration(MinLease))
	}
	if g.Disconnect.Replace > ReplaceImmediately {
		v.fail(at+".disconnect.replace", `Say "after_stop"`, "the replacement rule is not known")
	}
	g.Task.validate(v, at+".task")
}

// validateWishes looks at what a group asks of where its ranks are.
func (g *Group) validateWishes(v *validator, at string) {
	const domainHint = `It is "node", "nvlink", or the key of a label of the nodes, such as "rack"`
	if g.Within != "" && !ValidLabelKey(g.Within) {
		v.fail(at+".within", domainHint, "%q can't be a domain", g.Within)
	}
	if g.Prefer != "" && !ValidLabelKey(g.Prefer) {
		v.fail(at+".prefer", domainHint, "%q can't be a domain", g.Prefer)
	}
	switch {
	case g.Patience < 0:
		v.fail(at+".patience", "", "patience is negative")
	case g.Patience > 0 && g.Prefer == "":
		v.fail(at+".patience", `Add prefer = "…": it is what patience waits for`, "patience has nothing to wait for")
	}
	for j := range g.Affinities {
		a, at := &g.Affinities[j], fmt.Sprintf("%s.affinity[%d]", at, j)
		(&Constraint{Attribute: a.Attribute, Operator: OpEqual, Value: a.Value}).validate(v, at)
		if a.Weight < -100 || a.Weight > 100 || a.Weight == 0 {
			v.fail(at+".weight", "", "weight %d is not between -100 and 100, or is 0", a.Weight)
		}
	}
	for j := range g.Spreads {
		if err := checkAttribute(g.Spreads[j].Attribute); err != nil {
			v.fail(fmt.Sprintf("%s.spread[%d].attribute", at, j), "", "%s", err)
		}
	}
	if g.Checkpoint.Every < 0 {
		v.fail(at+".checkpoint.every", "", "every is negative")
	}
}

// validate is Check, with the field that is to blame.
func (c *Constraint) validate(v *validator, at string) {
	v.text(at+".value", c.Value)
	err := c.Check()
	switch {
	case err == nil:
	case checkAttribute(c.Attribute) != nil:
		v.fail(at+".attribute", "", "%s", err)
	case !slices.Contains(Operators, c.Operator):
		v.fail(at+".operator", "", "%s", err)
	default:
		v.fail(at+".value", "", "%s", err)
	}
}

func (r *Retry) validate(v *validator, at string, success []int) {
	if r.Attempts < 0 || r.Attempts > MaxRetryAttempts {
		v.fail(at+".attempts", "", "attempts %d is not between 0 and %d", r.Attempts, MaxRetryAttempts)
	}
	for _, class := range r.On {
		if class != ClassExit && class != ClassOOM && class != ClassTimeout {
			v.fail(at+".on", `Say "exit", "oom", "timeout"; what the cluster did is retried anyway`, "retry on %q is not a choice", class)
		}
	}
	for k, code := range r.ExitCodes {
		field := fmt.Sprintf("%s.exit_codes[%d]", at, k)
		v.exitCode(field, code)
		if slices.Contains(success, code) {
			v.fail(field, "", "exit code %d is a success, and not retried", code)
		}
	}
	if r.Delay < 0 {
		v.fail(at+".delay", "", "delay is negative")
	}
	if r.MaxDelay < r.Delay {
		v.fail(at+".max_delay", "", "max_delay %s is less than delay %s", FormatDuration(max(r.MaxDelay, 0)), FormatDuration(r.Delay))
	}
}

func (t *Task) validate(v *validator, at string) {
	if !ValidName(t.Name) {
		v.fail(at+".name", nameHint, "%q can't be the name of a task", t.Name)
	}
	switch {
	case t.Script == "" && t.Command == "":
		v.fail(at, `Say command = "…" or script = "…"`, "task %q says nothing to run", t.Name)
	case t.Script != "" && t.Command != "":
		v.fail(at+".command", "Keep one of them", "task %q has a script and a command", t.Name)
	case t.Script != "" && len(t.Args) > 0:
		v.fail(at+".args[0]", "Write them into the script", "a script takes no args")
	case strings.ContainsAny(withoutReferences(t.Command), " \t\n"):
		v.fail(at+".command", "Use args for its arguments, or script", "command is one program, and %q has a blank", clip(t.Command))
	}
	v.runtime(at+".script", t.Script)
	v.runtime(at+".command", t.Command)
	for k, arg := range t.Args {
		v.runtime(fmt.Sprintf("%s.args[%d]", at, k), arg)
	}
	v.runtime(at+".dir", t.Dir)
	if t.Dir != "" && !path.IsAbs(t.Dir) && !strings.HasPrefix(t.Dir, "${") {
		v.fail(at+".dir", "Say the whole path, or ${task.dir} for a fresh directory", "dir %q is not absolute", clip(t.Dir))
	}
	for k, e := range t.Env {
		field := at + ".env." + e.Name
		if !envPattern.MatchString(e.Name) {
			v.fail(field, "It has letters, digits and _, and does not begin with a digit", "%q can't be the name of an environment variable", e.Name)
		}
		v.runtime(field, e.Value)
		if slices.ContainsFunc(t.Env[:k], func(other EnvVar) bool { return other.Name == e.Name }) {
			v.fail(field, "", "%s is given twice", e.Name)
		}
	}
	if t.Start > StartFirst {
		v.fail(at+".start", `Say "each" or "first"`, "this way to start is not known")
	}
	t.validateFiles(v, at)
	v.signal(at+".kill_signal", t.KillSignal)
	if t.KillTimeout < 0 {
		v.fail(at+".kill_timeout", "", "kill_timeout is negative")
	}
	if len(t.SuccessCodes) == 0 {
		v.fail(at+".success_codes", "", "success_codes is empty: the task could never succeed")
	}
	for k, code := range t.SuccessCodes {
		v.exitCode(fmt.Sprintf("%s.success_codes[%d]", at, k), code)
	}
	if t.Logs.MaxSize < 4*KiB {
		v.fail(at+".logs.max_size", "", "max_size %s of a log segment is less than 4KiB", t.Logs.MaxSize)
	}
	if t.Logs.MaxFiles < 1 || t.Logs.MaxFiles > MaxLogFiles {
		v.fail(at+".logs.max_files", "", "max_files %d is not between 1 and %d", t.Logs.MaxFiles, MaxLogFiles)
	}
	t.Resources.validate(v, at+".resources")
}

// validateFiles looks at the files that a task names.
func (t *Task) validateFiles(v *validator, at string) {
	for k, name := range t.EnvFromFile {
		field := fmt.Sprintf("%s.env_from_file[%d]", at, k)
		v.text(field, name)
		if !path.IsAbs(name) {
			v.fail(field, "Say the whole path: it is read on the node", "%q is not absolute", clip(name))
		}
	}
	for k, name := range t.Upload {
		field := fmt.Sprintf("%s.upload[%d]", at, k)
		v.text(field, name)
		clean := path.Clean(name)
		switch {
		case name == "":
			v.fail(field, "Say a file or folder beside the job file", "a name in upload is empty")
		case path.IsAbs(name), clean == "..", strings.HasPrefix(clean, "../"):
			v.fail(field, "Say a file or folder below that of the job file", "%q is outside the folder of the job file", clip(name))
		}
	}
	v.runtime(at+".logs.path", t.Logs.Path)
}

var migPattern = regexp.MustCompile(`^[1-9]g\.[1-9][0-9]*gb(\+[a-z0-9.]+)?$`)

// validateParts looks at what asks for a part of one GPU.
func (r *Resources) validateParts(v *validator, at string) {
	switch {
	case r.Share < 0 || r.Share >= 1000:
		v.fail(at+".gpu.share", "Whole GPUs are asked for with gpus = N alone", "share %s is not a part of a GPU, as 0.5 is", r.Share)
	case r.Share > 0 && r.GPUs != 1:
		v.fail(at+".gpu.share", "Say gpus = 1", "a share is of one GPU, and gpus is %d", r.GPUs)
	case r.MIG != "" && !migPattern.MatchString(r.MIG):
		v.fail(at+".gpu.mig", `Say a profile that nvidia-smi mig -lgip shows, such as "1g.10gb"`, "%q can't be a MIG profile", clip(r.MIG))
	case r.MIG != "" && r.GPUs == 0:
		v.fail(at+".gpu.mig", "Say gpus = N: so many slices", "a MIG slice is asked for, and no GPU")
	case r.MIG != "" && r.Share > 0:
		v.fail(at+".gpu.share", "Keep one of them", "a share of a MIG slice is asked for")
	}
}

func (r *Resources) validate(v *validator, at string) {
	if r.GPUs < 0 || r.GPUs > MaxSlots {
		v.fail(at+".gpus", "For more, raise count", "gpus %d of one rank is not between 0 and %d", r.GPUs, MaxSlots)
	}
	if r.MilliCores < 0 {
		v.fail(at+".cores", "", "cores is negative")
	}
	if r.Memory < 0 {
		v.fail(at+".memory", "", "memory is negative")
	}
	if r.MinMemory < 0 {
		v.fail(at+".gpu.min_memory", "", "min_memory is negative")
	}
	if r.GPUs == 0 && len(r.Models) > 0 {
		v.fail(at+".gpu.model", "Say gpus = N", "a GPU model is asked for, and no GPU")
	}
	if r.GPUs == 0 && r.MinMemory > 0 {
		v.fail(at+".gpu.min_memory", "Say gpus = N", "a GPU's memory is asked for, and no GPU")
	}
	if r.Disk < 0 {
		v.fail(at+".disk", "", "disk is negative")
	}
	r.validateParts(v, at)
	for _, model := range r.Models {
		if strings.TrimSpace(model) == "" {
			v.fail(at+".gpu.model", `Say a word of the device's name, such as "H100"`, "a GPU model is empty")
		}
		v.text(at+".gpu.model", model)
	}
}

func (v *validator) exitCode(field string, code int) {
	if code < 0 || code > 255 {
		v.fail(field, "", "exit code %d is not between 0 and 255", code)
	}
}

func (v *validator) signal(field, name string) {
	if !slices.Contains(Signals, name) {
		v.fail(field, "One of: "+strings.Join(Signals, " "), "there is no signal %q to send", name)
	}
}

// text refuses what no process and no terminal could take.
func (v *validator) text(field, s string) {
	if strings.ContainsRune(s, 0) {
		v.fail(field, "", "a text holds a zero byte")
	}
	if strings.ToValidUTF8(s, "") != s {
		v.fail(field, "", "a text is not UTF-8")
	}
}

func (v *validator) runtime(field, s string) {
	v.text(field, s)
	if err := CheckRuntime(s); err != nil {
		v.fail(field, "", "%s", err)
	}
}

// withoutReferences is s without its run-time values, whose own blanks are none of the user's.
func withoutReferences(s string) string {
	parts, err := SplitText(s)
	if err != nil {
		return s
	}
	var text strings.Builder
	for _, p := range parts {
		text.WriteString(p.Text)
	}
	return text.String()
}

// Size is about how many bytes the spec takes on the wire and in a snapshot.
func (s *JobSpec) Size() int {
	const field = 8 // a number, or the tag and length of a text
	size := 8*field + len(s.Name) + len(s.Queue)
	for _, l := range s.Labels {
		size += 2*field + len(l.Key) + len(l.Value)
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		t := &g.Task
		size += 32*field + len(g.Name) + len(g.Within) + len(g.Prefer) + len(t.Name) + len(t.Script) + len(t.Command) + len(t.Dir) +
			len(t.Logs.Path) + len(t.Resources.MIG)
		for _, c := range g.Constraints {
			size += 3*field + len(c.Attribute) + len(c.Operator) + len(c.Value)
		}
		for _, a := range g.Affinities {
			size += 3*field + len(a.Attribute) + len(a.Value)
		}
		for _, s := range g.Spreads {
			size += 2*field + len(s.Attribute)
		}
		for _, list := range [][]string{t.Args, t.EnvFromFile, t.Upload, t.Resources.Models} {
			for _, text := range list {
				size += field + len(text)
			}
		}
		for _, e := range t.Env {
			size += 2*field + len(e.Name) + len(e.Value)
		}
		size += field * (len(g.Retry.On) + len(g.Retry.ExitCodes) + len(t.SuccessCodes))
	}
	return size
}
