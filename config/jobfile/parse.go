// Package jobfile reads the job file: HCL in, specs with all defaults out, and diagnostics that quote the source. Unknown words
// are errors that name ours; what is part of the contract and not built yet is refused at its line. Expressions are evaluated
// with the file's variables, local values and pure functions; run-time values that stand alone in their ${} stay in the spec's
// text for the worker, as muster.SplitText reads them.
package jobfile

import (
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

// Options are what the caller knows beside the file.
type Options struct {
	Dir string // absolute; relative dirs are relative to it, and it is the default one. "": dir must be absolute

	// Over the file, as written on a command line; "" = as the file says.
	Name      string
	Queue     string
	Priority  string
	TimeLimit string

	Vars      []Var // the last of a name counts; before them files, before these the environment
	VarFiles  []VarFile
	LookupEnv func(name string) (string, bool)           // nil: the environment has no variables
	ReadFile  func(name string) (text []byte, err error) // of file(…), its name as written; nil: no file is read
}

// Parse reads a job file. The specs have their defaults filled in and are valid; with an error there are none.
func Parse(filename string, src []byte, opts Options) ([]*muster.JobSpec, hcl.Diagnostics) {
	doc, d, diags := decode(filename, src, opts)
	if diags.HasErrors() {
		return nil, diags
	}
	if len(doc.Jobs) == 0 {
		return nil, append(diags, schema.About(filename, "No job", "%s has no job block. The smallest job:\n\n%s", filename, smallest))
	}
	specs := make([]*muster.JobSpec, 0, len(doc.Jobs))
	for i := range doc.Jobs {
		specs = append(specs, finish(d, "jobs["+strconv.Itoa(i)+"]", &doc.Jobs[i], opts))
	}
	override(d, specs, opts)
	if !d.Diags.HasErrors() {
		said := told{}
		for i, spec := range specs {
			if err := spec.Validate(); err != nil {
				d.Diags = said.fresh(d.Diags, diagnose(d, doc, "jobs["+strconv.Itoa(i)+"]", err))
			}
		}
	}
	diags = append(diags, d.Diags...)
	if diags.HasErrors() {
		return nil, diags
	}
	return specs, diags
}

// What errors show; a test parses them.
const (
	smallestTask = `  task "hello" {
    command = "nvidia-smi"
    resources {
      gpus = 1
    }
  }`
	smallest = `  job "hello" {
    task "hello" {
      command = "nvidia-smi"
      resources {
        gpus = 1
      }
    }
  }`
)

// decode reads the syntax and the table; its diagnostics leave the decoder's empty.
func decode(filename string, src []byte, opts Options) (*document, *schema.Decoder, hcl.Diagnostics) {
	body, diags := schema.Parse(filename, src)
	if body == nil {
		return nil, nil, diags
	}
	doc := &document{}
	d := &schema.Decoder{Source: src, Root: &fileTable, Hints: hints}
	declarations, jobs := parted(body)
	d.Decode(declarations, &fileTable, "", doc)
	d.Scope = scope(d, &doc.names, opts)
	d.Decode(jobs, &fileTable, "", doc)
	if n := len(doc.Jobs); n > muster.MaxJobs {
		d.Error("jobs["+strconv.Itoa(muster.MaxJobs)+"]", "Too many jobs", "A file has at most %d jobs, and this one has %d.", muster.MaxJobs, n)
		doc.Jobs = nil
	}
	said := told{}
	for i := range doc.Jobs {
		before := len(d.Diags)
		check(d, doc, i)
		unbuilt(d, doc, i)
		d.Diags = said.fresh(d.Diags[:before:before], d.Diags[before:]...)
	}
	diags = append(diags, d.Diags...)
	d.Diags = nil
	schema.Sort(diags)
	return doc, d, diags
}

// told is what jobs before this one were told. Jobs that a dynamic block makes share their lines, so they share their
// mistakes; others have lines of their own.
type told map[mistake]bool

type mistake struct {
	summary string
	subject hcl.Range
}

// fresh appends to diags what is said of one more job, but not what was said of one before.
func (m told) fresh(diags hcl.Diagnostics, ofJob ...*hcl.Diagnostic) hcl.Diagnostics {
	var now []mistake
	for _, diag := range ofJob {
		if diag.Subject == nil {
			diags = append(diags, diag)
			continue
		}
		at := mistake{diag.Summary, *diag.Subject}
		if m[at] {
			continue
		}
		now, diags = append(now, at), append(diags, diag)
	}
	for _, at := range now {
		m[at] = true
	}
	return diags
}

// unbuilt refuses what no part of muster acts on yet.
func unbuilt(d *schema.Decoder, doc *document, i int) {
	groups := doc.Jobs[i].Groups
	if len(groups) == 0 {
		groups = []group{doc.Jobs[i].Group}
	}
	var said muster.JobSpec
	for _, g := range groups {
		if len(g.Tasks) > 0 {
			g.Task = g.Tasks[0]
		}
		said.Groups = append(said.Groups, g.Group)
	}
	for _, err := range said.Unbuilt() {
		diag := diagnose(d, doc, "jobs["+strconv.Itoa(i)+"]", err)
		diag.Summary, diag.Detail = "Not supported yet", err.Message+"."
		d.Diags = append(d.Diags, diag)
	}
}

// parted gives what declares values, and the rest, which uses them.
func parted(body *hclsyntax.Body) (declarations, rest *hclsyntax.Body) {
	first, second := *body, *body
	first.Blocks, second.Blocks, first.Attributes = nil, nil, nil
	for _, b := range body.Blocks {
		if b.Type == "variable" || b.Type == "locals" {
			first.Blocks = append(first.Blocks, b)
		} else {
			second.Blocks = append(second.Blocks, b)
		}
	}
	return &first, &second
}

// finish makes the spec of a job block.
func finish(d *schema.Decoder, path string, j *job, opts Options) *muster.JobSpec {
	spec := &j.Spec
	if len(j.Groups) == 0 {
		spec.Groups = []muster.Group{groupOf(d, path, &j.Group, opts)}
	}
	for g := range j.Groups {
		spec.Groups = append(spec.Groups, groupOf(d, path+".groups["+strconv.Itoa(g)+"]", &j.Groups[g], opts))
	}
	if opts.Name != "" {
		spec.Name = opts.Name
	}
	_, said := d.Places[path+".priority"]
	spec.PriorityOfQueue = !said
	spec.FillDefaults()
	return spec
}

func groupOf(d *schema.Decoder, path string, g *group, opts Options) muster.Group {
	out := g.Group
	out.Task = g.Tasks[0]
	dir := path + ".tasks[0].dir"
	_, said := d.Places[dir]
	for k, name := range out.Task.EnvFromFile {
		if opts.Dir != "" && name != "" && !filepath.IsAbs(name) && !strings.HasPrefix(name, "~") {
			out.Task.EnvFromFile[k] = filepath.Join(opts.Dir, name)
		}
	}
	if len(out.Task.Upload) > 0 && !said {
		return out // the task directory: the files are there
	}
	out.Task.Dir = resolve(d, dir, out.Task.Dir, said, opts.Dir)
	return out
}

// resolve makes a task's directory absolute; "" is the task directory.
func resolve(d *schema.Decoder, path, dir string, said bool, base string) string {
	if base != "" {
		base = muster.EscapeRuntime(base)
	}
	switch {
	case !said:
		return base
	case dir == "${task.dir}":
		return ""
	case dir == "":
		d.Error(path, "Wrong value for dir", "\"dir\" is empty. Leave it out for the folder of the job file; a fresh one is \"${task.dir}\".")
	case strings.HasPrefix(dir, "~"), strings.HasPrefix(dir, "$") && !strings.HasPrefix(dir, "${"):
		d.Error(path, "Wrong value for dir", "No shell reads \"dir\": write the folder itself, as in \"/home/ann/work\".")
	case filepath.IsAbs(dir), strings.HasPrefix(dir, "${task.dir}/"), strings.HasPrefix(dir, "${checkpoint.dir}"):
	case base == "":
		d.Error(path, "Wrong value for dir", "\"dir\" must be absolute here, or \"${task.dir}\" for a fresh one: the server does not know your folder.")
	default:
		return filepath.Join(base, dir)
	}
	return dir
}

// override puts the command line's words over the file's.
func override(d *schema.Decoder, specs []*muster.JobSpec, opts Options) {
	flag := func(name, format string, args ...any) { d.Error("", "Wrong value for --"+name, format, args...) }
	if opts.Name != "" && len(specs) > 1 {
		flag("name", "The file has %d jobs: --name names one.", len(specs))
	} else if opts.Name != "" && !muster.ValidName(opts.Name) {
		flag("name", "%q can't be the name of a job. %s.", opts.Name, nameRule)
	}
	for _, spec := range specs {
		if opts.Queue != "" {
			spec.Queue = opts.Queue
		}
		if opts.Priority != "" {
			n, err := strconv.Atoi(opts.Priority)
			if err != nil || n < 0 || n > 100 {
				flag("priority", "%q is not a whole number from 0 to 100.", opts.Priority)
				return
			}
			spec.Priority, spec.PriorityOfQueue = n, false
		}
		if opts.TimeLimit != "" {
			limit, err := muster.ParseDuration(opts.TimeLimit)
			if err != nil {
				flag("time-limit", "%s.", err)
				return
			}
			spec.TimeLimit = limit
		}
	}
}

// WriteText prints diagnostics with the lines of the source, and of the variables' files, wrapped at width (0: not).
func WriteText(w io.Writer, filename string, src []byte, diags hcl.Diagnostics, width uint, color bool, more ...VarFile) error {
	sources := map[string][]byte{filename: src}
	for _, f := range more {
		sources[f.Name] = f.Source
	}
	return schema.WriteText(w, sources, diags, width, color)
}

// WriteGCC prints a line for each diagnostic: "file:line:col: error: …".
func WriteGCC(w io.Writer, diags hcl.Diagnostics) error { return schema.WriteGCC(w, diags) }

// Diagnose shows a server's refusal, whose Field is like "jobs[0].groups[0].task.dir", at its line of the file that was
// submitted, read with the same options.
func Diagnose(filename string, src []byte, opts Options, refusal *muster.Error) *hcl.Diagnostic {
	path, field := "jobs[0]", refusal.Field
	if first, rest, _ := strings.Cut(refusal.Field, "."); strings.HasPrefix(first, "jobs[") {
		path, field = first, rest
	}
	doc, d, _ := decode(filename, src, opts)
	if doc == nil {
		doc, d = &document{}, &schema.Decoder{}
	}
	here := *refusal
	here.Field = field
	return diagnose(d, doc, path, &here)
}

// diagnose finds the line of an error's field below path.
func diagnose(d *schema.Decoder, doc *document, path string, err *muster.Error) *hcl.Diagnostic {
	field := strings.ReplaceAll(err.Field, "].task", "].tasks[0]")
	if i, err := strconv.Atoi(strings.Trim(path, "jobs[]")); err == nil && i >= 0 && i < len(doc.Jobs) && len(doc.Jobs[i].Groups) == 0 {
		field = strings.TrimPrefix(strings.TrimPrefix(field, "groups[0]"), ".")
	}
	at := path
	if field != "" {
		at += "." + field
	}
	detail := err.Message + "."
	if word, _, _ := strings.Cut(err.Message, " "); !strings.HasSuffix(err.Field, word) { // the field's own name stays as it is
		detail = strings.ToUpper(detail[:1]) + detail[1:]
	}
	if err.Hint != "" {
		detail += " " + err.Hint + "."
	}
	diag := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid job", Detail: detail}
	if place := d.Place(at); place.Filename != "" {
		diag.Subject = &place
	}
	return diag
}
