// Package queuefile reads and writes the queues file: HCL in, the tree of queues and the scheduling policy out, and diagnostics
// that quote the source. What children inherit is filled in: allow as a whole, defaults, caps and idle value by value.
package queuefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

// File is what a queues file says.
type File struct {
	Queues []muster.QueueSpec // sorted by name
	Policy muster.Policy
}

// IsQueueFile says whether a file is one of queues rather than of jobs: a queue or a scheduling block stands in it.
func IsQueueFile(name string, src []byte) bool {
	body, _ := schema.Parse(name, src)
	return body != nil && slices.ContainsFunc(body.Blocks, func(b *hclsyntax.Block) bool { return b.Type == "queue" || b.Type == "scheduling" })
}

// Parse reads a queues file. What it gives is valid; with an error it gives nil.
func Parse(filename string, src []byte) (*File, hcl.Diagnostics) {
	r, diags := read(filename, src)
	if r == nil {
		return nil, diags
	}
	file := &File{Queues: r.specs, Policy: r.doc.Policy}
	if !diags.HasErrors() {
		if err := muster.CheckQueues(file.Queues, &file.Policy); err != nil {
			diags = append(diags, r.diagnose(err))
		}
	}
	if diags.HasErrors() {
		return nil, diags
	}
	return file, diags
}

// Diagnose shows a server's refusal, whose Field is like "research/nlp:max_gpus", at its line of the file.
func Diagnose(filename string, src []byte, refusal *muster.Error) *hcl.Diagnostic {
	r, _ := read(filename, src)
	if r == nil {
		r = &reader{d: &schema.Decoder{}}
	}
	return r.diagnose(refusal)
}

// A reader turns the blocks of a file into specs.
type reader struct {
	d      *schema.Decoder
	doc    document
	specs  []muster.QueueSpec
	places map[string]string // of queues by name: the path of their block
}

func read(filename string, src []byte) (*reader, hcl.Diagnostics) {
	body, diags := schema.Parse(filename, src)
	if body == nil {
		return nil, diags
	}
	r := &reader{
		d:      &schema.Decoder{Source: src, Root: &fileTable, Hints: hints},
		doc:    document{Policy: muster.DefaultPolicy()},
		places: map[string]string{},
	}
	r.d.Decode(body, &fileTable, "", &r.doc)
	r.walk(r.doc.Queues, "", nil)
	slices.SortFunc(r.specs, func(a, b muster.QueueSpec) int { return strings.Compare(a.Name, b.Name) })
	diags = append(diags, r.d.Diags...)
	schema.Sort(diags)
	return r, diags
}

// walk makes specs of the queue blocks in one body; path is its own, above is nil at the top.
func (r *reader) walk(queues []queue, path string, above *muster.QueueSpec) {
	for i := range queues {
		at := fmt.Sprintf("%squeues[%d]", path, i)
		spec := queues[i].Spec
		if !r.name(at, &spec, queues[:i], path) {
			continue
		}
		if above != nil {
			spec.Name = above.Name + "/" + spec.Name
		}
		r.inherit(at, &spec, above)
		r.places[spec.Name] = at
		r.specs = append(r.specs, spec)
		r.walk(queues[i].Queues, at+".", &spec)
	}
}

// name looks at what a block's label says.
func (r *reader) name(at string, spec *muster.QueueSpec, before []queue, path string) bool {
	name := spec.Name
	switch first := slices.IndexFunc(before, func(q queue) bool { return q.Spec.Name == name }); {
	case name == "": // said already: a label is missing
		if place, ok := r.d.Places[at+".name"]; ok {
			r.d.Diags = append(r.d.Diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Wrong name", Detail: "The name of the queue is empty.", Subject: &place})
		}
		return false
	case strings.Contains(name, "/") && muster.ValidQueueName(name):
		levels := strings.Split(name, "/")
		show := ""
		for i, level := range levels {
			show += strings.Repeat("  ", i+1) + fmt.Sprintf("queue %q {\n", level)
		}
		for i := len(levels); i > 0; i-- {
			show += strings.Repeat("  ", i) + "}\n"
		}
		r.d.Error(at+".name", "Path as a name", "A queue in a queue is a block in it:\n\n%s", strings.TrimSuffix(show, "\n"))
		return false
	case !muster.ValidQueueName(name):
		r.d.Error(at+".name", "Wrong name", "%q can't be the name of a queue. It has at most 63 letters, digits, _ and -, and begins with a letter or a digit.", name)
		return false
	case first >= 0:
		line := r.d.Place(fmt.Sprintf("%squeues[%d]", path, first)).Start.Line
		r.d.Error(at+".name", "Two queues of one name", "There is a queue %q on line %d already.", name, line)
		return false
	}
	return true
}

// inherit fills in what the block at a path leaves to the queue around it.
func (r *reader) inherit(at string, spec, above *muster.QueueSpec) {
	said := func(attribute string) bool { _, ok := r.d.Places[at+"."+attribute]; return ok }
	spec.Defaults.HasPriority = said("defaults.priority")
	spec.Caps.HasPriority = said("caps.priority")
	if spec.Idle.After != 0 && !said("idle.below") {
		spec.Idle.Below = defaultIdleBelow
	}
	if above == nil {
		return
	}
	if !said("allow") {
		spec.Allow = above.Allow
	}
	if !said("defaults.time_limit") {
		spec.Defaults.TimeLimit = above.Defaults.TimeLimit
	}
	if !spec.Defaults.HasPriority {
		spec.Defaults.HasPriority, spec.Defaults.Priority = above.Defaults.HasPriority, above.Defaults.Priority
	}
	if !said("caps.time_limit") {
		spec.Caps.TimeLimit = above.Caps.TimeLimit
	}
	if !spec.Caps.HasPriority {
		spec.Caps.HasPriority, spec.Caps.Priority = above.Caps.HasPriority, above.Caps.Priority
	}
	if !said("caps.stop_after") {
		spec.Caps.StopAfter = above.Caps.StopAfter
	}
	if !said("idle") {
		spec.Idle = above.Idle
	}
}

const defaultIdleBelow = 5

// diagnose shows an error of CheckQueues, or of the server, where the file says what it is about.
func (r *reader) diagnose(err *muster.Error) *hcl.Diagnostic {
	detail := strings.ToUpper(err.Message[:1]) + err.Message[1:] + "."
	if word, _, _ := strings.Cut(err.Message, " "); strings.Contains(word, "_") { // an attribute's name stays as it is
		detail = err.Message + "."
	}
	if err.Hint != "" {
		detail += " " + err.Hint + "."
	}
	diag := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid queues", Detail: detail}
	queue, attribute, _ := strings.Cut(err.Field, ":")
	at, isQueue := r.places[queue]
	switch {
	case isQueue && attribute == "":
		at += ".name"
	case isQueue:
		at += "." + attribute
	case queue == "scheduling":
		at = "scheduling." + attribute
	}
	if place := r.d.Place(at); place.Filename != "" {
		diag.Subject = &place
	}
	return diag
}
