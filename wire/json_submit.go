package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster"
)

// SubmitJSON is what POST /v1/jobs takes.
type SubmitJSON struct {
	RequestID string
	Jobs      []*muster.JobSpec // defaults filled in, and valid
	HCL       string            // a job file, in place of Jobs
	Variables map[string]string // its variables' values, as a command line has them
}

// SubmitBodyJSON is the form of POST /v1/jobs: jobs, or hcl and variables.
type SubmitBodyJSON struct {
	Schema    string         `json:"schema,omitempty"`
	RequestID string         `json:"request_id,omitempty"`
	Jobs      []JobSpecJSON  `json:"jobs,omitempty"`
	HCL       string         `json:"hcl,omitempty"`
	Variables map[string]any `json:"variables,omitempty"`
}

// CancelBodyJSON is what POST /v1/jobs/N:cancel takes; nothing means a stop with all its graces.
type CancelBodyJSON struct {
	RequestID string `json:"request_id,omitempty"`
	Now       bool   `json:"now,omitempty"` // SIGKILL at once
}

// ParseCancelJSON reads the body of POST /v1/jobs/N:cancel, which may be empty.
func ParseCancelJSON(data []byte) (CancelBodyJSON, error) {
	var d jsonReader
	var out CancelBodyJSON
	if len(data) > 0 {
		d.object("", data, keys{
			"request_id": func(at string, raw json.RawMessage) { out.RequestID = d.text(at, raw) },
			"now":        func(at string, raw json.RawMessage) { out.Now = d.boolean(at, raw) },
		})
	}
	return out, d.err
}

// ParseSubmitJSON reads the body of POST /v1/jobs, SubmitBodyJSON, as strictly as a job file: a key that isn't
// known, or not built yet, is refused. The error is a *muster.Error of KindInvalid that names the place: its Field is a path of
// the JSON's own keys for what can't be read ("jobs[0].task.train.dirr"), and "jobs[0]." and a path of JobSpec.Validate's for
// what can't be meant.
func ParseSubmitJSON(data []byte) (*SubmitJSON, error) {
	var d jsonReader
	var out SubmitJSON
	var jobs []json.RawMessage
	d.object("", data, keys{
		"schema": func(at string, raw json.RawMessage) {
			if schema := d.text(at, raw); schema != Schema {
				d.fail(at, "the schema %q isn't known: this server reads %s", schema, Schema)
			}
		},
		"request_id": func(at string, raw json.RawMessage) { out.RequestID = d.text(at, raw) },
		"jobs":       func(at string, raw json.RawMessage) { jobs = d.list(at, raw) },
		"hcl": func(at string, raw json.RawMessage) {
			if out.HCL = d.text(at, raw); out.HCL == "" {
				d.fail(at, "the job file is empty")
			}
		},
		"variables": func(at string, raw json.RawMessage) {
			out.Variables = map[string]string{}
			d.each(at, raw, func(key, at string, raw json.RawMessage) { out.Variables[key] = d.variable(raw) })
		},
	})
	switch {
	case d.err != nil:
	case out.HCL != "" && jobs != nil:
		d.fail("hcl", "jobs stand there as well: say one of the two")
	case out.HCL == "" && out.Variables != nil:
		d.fail("variables", "only a job file, hcl, has variables")
	case out.HCL == "" && len(jobs) == 0:
		d.fail("jobs", `there is no job: say {"jobs": […]} or {"hcl": "…"}`)
	}
	if len(jobs) > muster.MaxJobs {
		d.fail("jobs", "there are %d jobs in one request, at most %d are allowed", len(jobs), muster.MaxJobs)
	}
	for i, raw := range jobs {
		if d.err != nil {
			break
		}
		at := fmt.Sprintf("jobs[%d]", i)
		spec := d.job(at, raw)
		if d.err != nil {
			break
		}
		spec.FillDefaults()
		if err := spec.Validate(); err != nil {
			err.Field = strings.TrimSuffix(at+"."+err.Field, ".")
			return nil, err
		}
		out.Jobs = append(out.Jobs, spec)
	}
	if d.err != nil {
		return nil, d.err
	}
	return &out, nil
}

// keys says what a JSON object may hold, and what to do with it. notYet marks what the job file will have.
type keys map[string]func(at string, raw json.RawMessage)

var notYet func(string, json.RawMessage)

// A jsonReader keeps the first mistake, with its path.
type jsonReader struct{ err error }

func (d *jsonReader) fail(at, format string, args ...any) {
	if d.err == nil {
		d.err = &muster.Error{Kind: muster.KindInvalid, Message: where(at) + fmt.Sprintf(format, args...), Field: at}
	}
}

func where(at string) string {
	if at == "" {
		return ""
	}
	return at + ": "
}

// each calls f with the members of an object, in the order in which they stand; one that stands twice is refused.
func (d *jsonReader) each(at string, raw json.RawMessage, f func(key, at string, raw json.RawMessage)) {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	first, err := decoder.Token()
	if err == nil && first != json.Delim('{') {
		d.fail(at, "an object is expected: {…}")
		return
	}
	seen := map[string]bool{}
	for err == nil && decoder.More() && d.err == nil {
		var key json.Token
		if key, err = decoder.Token(); err != nil {
			break
		}
		var value json.RawMessage
		if err = decoder.Decode(&value); err != nil {
			break
		}
		name := key.(string) // the decoder takes no other key
		below := name
		if at != "" {
			below = at + "." + name
		}
		if seen[name] {
			d.fail(below, "it stands there twice")
		}
		seen[name] = true
		f(name, below, value)
	}
	if err == nil && d.err == nil {
		_, err = decoder.Token() // the closing brace
	}
	if err == nil && d.err == nil && decoder.More() {
		err = errors.New("something follows the end of the object")
	}
	if err != nil {
		d.fail(at, "this is no JSON: %v", err)
	}
}

func (d *jsonReader) object(at string, raw json.RawMessage, known keys) {
	d.each(at, raw, func(key, at string, raw json.RawMessage) {
		read, ok := known[key]
		switch {
		case !ok:
			var names []string
			for name, read := range known {
				if read != nil {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			d.fail(at, "%q is not expected here; known are %s", key, strings.Join(names, ", "))
		case read == nil:
			d.fail(at, "%q is not supported yet", key)
		default:
			read(at, raw)
		}
	})
}

func decodeJSON[T any](d *jsonReader, at, expected string, raw json.RawMessage) T {
	var out *T
	if err := json.Unmarshal(raw, &out); err != nil || out == nil {
		d.fail(at, "%s is expected", expected)
		out = new(T)
	}
	return *out
}

func (d *jsonReader) list(at string, raw json.RawMessage) []json.RawMessage {
	return decodeJSON[[]json.RawMessage](d, at, "a list: […]", raw)
}

func (d *jsonReader) text(at string, raw json.RawMessage) string {
	return decodeJSON[string](d, at, "a text in quotes", raw)
}

// variable gives a variable's value as a command line has it: text as it is, anything else as it stands, which is HCL too.
func (d *jsonReader) variable(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && string(raw) != "null" {
		return text
	}
	return string(raw)
}

func (d *jsonReader) integer(at string, raw json.RawMessage) int {
	return int(decodeJSON[int32](d, at, "a whole number", raw))
}

func (d *jsonReader) boolean(at string, raw json.RawMessage) bool {
	return decodeJSON[bool](d, at, "true or false", raw)
}

func (d *jsonReader) texts(at string, raw json.RawMessage) []string {
	var out []string
	for i, element := range d.list(at, raw) {
		out = append(out, d.text(fmt.Sprintf("%s[%d]", at, i), element))
	}
	return out
}

func (d *jsonReader) integers(at string, raw json.RawMessage) []int {
	var out []int
	for i, element := range d.list(at, raw) {
		out = append(out, d.integer(fmt.Sprintf("%s[%d]", at, i), element))
	}
	return out
}

// word reads one of words and gives its position.
func (d *jsonReader) word(at string, raw json.RawMessage, words []string) int {
	text := d.text(at, raw)
	i := slices.Index(words, text)
	if i < 0 {
		d.fail(at, "%q is not a choice: say one of %s", text, strings.Join(words, ", "))
		return 0
	}
	return i
}
