package rpc

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// The OpenAPI file is written from the table of routes and, by reflection, from the JSON forms of wire: what is not in it is
// not served, and what is served is in it.

// openAPI is an OpenAPI 3.1 document, as far as this API needs one.
type openAPI struct {
	OpenAPI    string                              `json:"openapi"`
	Info       apiInfo                             `json:"info"`
	Paths      map[string]map[string]*apiOperation `json:"paths"`
	Components apiComponents                       `json:"components"`
}

type apiInfo struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

type apiComponents struct {
	Schemas map[string]*apiSchema `json:"schemas"`
}

type apiOperation struct {
	Summary    string                `json:"summary"`
	Parameters []apiParameter        `json:"parameters,omitempty"`
	Body       *apiContent           `json:"requestBody,omitempty"`
	Responses  map[string]apiContent `json:"responses"`
}

type apiParameter struct {
	Name        string     `json:"name"`
	In          string     `json:"in"`
	Required    bool       `json:"required,omitempty"`
	Description string     `json:"description,omitempty"`
	Explode     *bool      `json:"explode,omitempty"`
	Schema      *apiSchema `json:"schema"`
}

type apiContent struct {
	Description string              `json:"description,omitempty"`
	Content     map[string]apiMedia `json:"content"`
}

type apiMedia struct {
	Schema *apiSchema `json:"schema"`
}

// apiSchema is a JSON schema. Types is a list where null is a value too.
type apiSchema struct {
	Ref        string                `json:"$ref,omitempty"`
	Type       []string              `json:"type,omitempty"`
	Format     string                `json:"format,omitempty"`
	Enum       []string              `json:"enum,omitempty"`
	Minimum    *int                  `json:"minimum,omitempty"`
	Items      *apiSchema            `json:"items,omitempty"`
	Properties map[string]*apiSchema `json:"properties,omitempty"`
	Required   []string              `json:"required,omitempty"`
	Additional any                   `json:"additionalProperties,omitempty"` // false, or the schema of a map's values
	OneOf      []*apiSchema          `json:"oneOf,omitempty"`
}

// words are the values of fields that have few, by form and field.
var words = map[string][]string{
	"Job.state":          jobStates(),
	"Rank.state":         {"pending", "preparing", "ready", "running", "stopping", "ended"},
	"Node.state":         {"ready", "draining", "drained", "suspect", "lost"},
	"GPU.health":         {"healthy", "degraded", "quarantined", "lost"},
	"LogLine.stream":     {"stdout", "stderr"},
	"ErrorBody.code":     errorKinds(),
	"Disconnect.replace": {"after_stop", "immediately"},
}

func errorKinds() []string {
	var kinds []string
	for _, k := range []muster.Kind{muster.KindError, muster.KindUsage, muster.KindInvalid, muster.KindDenied, muster.KindNotFound,
		muster.KindConflict, muster.KindUnavailable, muster.KindInfeasible} {
		kinds = append(kinds, string(k))
	}
	return kinds
}

func (s *Server) httpOpenAPI(w http.ResponseWriter, _ *request) error {
	write(w, http.StatusOK, describeAPI(s.routes()))
	return nil
}

// describeAPI writes the OpenAPI file of routes.
func describeAPI(routes map[string]methods) openAPI {
	forms := apiForms{schemas: map[string]*apiSchema{}}
	doc := openAPI{OpenAPI: "3.1.0", Info: apiInfo{Title: "muster", Version: wire.Schema,
		Description: "The HTTP API of a muster server; any server answers. Forms only ever grow."},
		Paths: map[string]map[string]*apiOperation{}}
	failure := forms.media(wire.ErrorJSON{}, "application/json", "a refusal, with the reason and, where there is one, what to do")
	for path, m := range routes {
		doc.Paths[path] = map[string]*apiOperation{}
		for method, op := range m {
			o := &apiOperation{Summary: op.summary, Responses: map[string]apiContent{"default": failure}}
			if strings.Contains(path, "{id}") {
				one := 1
				o.Parameters = append(o.Parameters, apiParameter{Name: "id", In: "path", Required: true, Description: "the job's number",
					Schema: &apiSchema{Type: []string{"integer"}, Minimum: &one}})
			}
			for _, p := range op.query {
				o.Parameters = append(o.Parameters, p.describe())
			}
			if op.takes != nil {
				body := forms.media(op.takes, "application/json", "")
				o.Body = &body
			}
			o.Responses["200"] = forms.answer(&op)
			doc.Paths[path][strings.ToLower(method)] = o
		}
	}
	doc.Components.Schemas = forms.schemas
	return doc
}

func (p *parameter) describe() apiParameter {
	schema := &apiSchema{Type: []string{"string"}, Enum: p.words}
	if p.number {
		one := 1
		schema = &apiSchema{Type: []string{"integer"}, Minimum: &one}
	}
	out := apiParameter{Name: p.name, In: "query", Description: p.doc, Schema: schema}
	if p.many {
		joined := false // by commas
		out.Explode, out.Schema = &joined, &apiSchema{Type: []string{"array"}, Items: schema}
	}
	return out
}

// apiForms gathers the schemas of JSON forms.
type apiForms struct{ schemas map[string]*apiSchema }

func (f *apiForms) answer(op *operation) apiContent {
	text := apiMedia{Schema: &apiSchema{Type: []string{"string"}}}
	switch {
	case op.gives == nil:
		return apiContent{Description: "text", Content: map[string]apiMedia{"text/plain": text}}
	case op.lines:
		c := f.media(op.gives, "application/jsonl", "lines, each an object")
		if op.texts {
			c.Description, c.Content["text/plain"] = "lines; each an object with format=jsonl", text
		}
		return c
	}
	if _, itself := op.gives.(openAPI); itself {
		return apiContent{Description: "an OpenAPI 3.1 document", Content: map[string]apiMedia{"application/json": {Schema: &apiSchema{Type: []string{"object"}}}}}
	}
	return f.media(op.gives, "application/json", "the answer")
}

func (f *apiForms) media(form any, kind, description string) apiContent {
	return apiContent{Description: description, Content: map[string]apiMedia{kind: {Schema: f.of(reflect.TypeOf(form), "")}}}
}

var (
	timeType   = reflect.TypeFor[time.Time]()
	numberType = reflect.TypeFor[json.Number]()
)

// formName is how a form is called: wire's JobJSON is Job, ItemsJSON[JobJSON] is JobItems.
func formName(t reflect.Type) string {
	name := t.Name()
	if generic, of, is := strings.Cut(name, "["); is {
		of = strings.TrimSuffix(of, "]")
		of = of[strings.LastIndexByte(of, '.')+1:]
		return strings.TrimSuffix(of, "JSON") + strings.TrimSuffix(generic, "JSON")
	}
	return strings.TrimSuffix(name, "JSON")
}

// of gives the schema of a type; place is FORM.FIELD where it stands.
func (f *apiForms) of(t reflect.Type, place string) *apiSchema {
	one := func(kind string) *apiSchema { return &apiSchema{Type: []string{kind}} }
	switch {
	case t == timeType:
		return &apiSchema{Type: []string{"string"}, Format: "date-time"}
	case t == numberType:
		return one("number")
	case t.Kind() == reflect.Pointer:
		inner := f.of(t.Elem(), place)
		if inner.Ref != "" {
			return &apiSchema{OneOf: []*apiSchema{inner, one("null")}}
		}
		nullable := *inner
		nullable.Type = append(slices.Clone(inner.Type), "null")
		return &nullable
	}
	switch t.Kind() {
	case reflect.Struct:
		return f.form(t)
	case reflect.Slice:
		return &apiSchema{Type: []string{"array"}, Items: f.of(t.Elem(), place)}
	case reflect.Map:
		return &apiSchema{Type: []string{"object"}, Additional: f.of(t.Elem(), place)}
	case reflect.Interface:
		return &apiSchema{}
	case reflect.String:
		return &apiSchema{Type: []string{"string"}, Enum: words[place]}
	case reflect.Bool:
		return one("boolean")
	case reflect.Float32, reflect.Float64:
		return one("number")
	}
	return one("integer") // every other kind that JSON forms have
}

// form gives a reference to the schema of a struct, and makes that.
func (f *apiForms) form(t reflect.Type) *apiSchema {
	name := formName(t)
	ref := &apiSchema{Ref: "#/components/schemas/" + name}
	if f.schemas[name] != nil {
		return ref
	}
	s := &apiSchema{Type: []string{"object"}, Properties: map[string]*apiSchema{}, Additional: false}
	f.schemas[name] = s
	f.fields(s, name, t, false)
	slices.Sort(s.Required)
	return ref
}

// fields adds the fields of a struct, and of those embedded in it. What an embedded pointer brings may be missing.
func (f *apiForms) fields(s *apiSchema, name string, t reflect.Type, optional bool) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && tag == "" {
			inner, pointer := field.Type, field.Type.Kind() == reflect.Pointer
			if pointer {
				inner = inner.Elem()
			}
			f.fields(s, name, inner, optional || pointer)
			continue
		}
		s.Properties[tag] = f.of(field.Type, name+"."+tag)
		if !optional && !strings.Contains(options, "omitempty") && !asked[name] {
			s.Required = append(s.Required, tag)
		}
	}
}

// asked are forms that clients send as well: there what is left out has its default.
var asked = mentioned(reflect.TypeFor[wire.SubmitBodyJSON](), map[string]bool{})

func mentioned(t reflect.Type, seen map[string]bool) map[string]bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		mentioned(t.Elem(), seen)
	case reflect.Struct:
		if t == timeType || seen[formName(t)] {
			break
		}
		seen[formName(t)] = true
		for i := range t.NumField() {
			mentioned(t.Field(i).Type, seen)
		}
	}
	return seen
}
