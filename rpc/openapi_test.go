package rpc_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// apiDoc is the OpenAPI file as a client reads it.
type apiDoc struct {
	t          *testing.T
	Paths      map[string]map[string]map[string]any
	Components struct{ Schemas map[string]any }
}

func fetchAPI(t *testing.T, base string) *apiDoc {
	t.Helper()
	status, body := ask(t, "GET", base+"/v1/openapi.json", "")
	doc := &apiDoc{t: t}
	if err := json.Unmarshal([]byte(body), doc); err != nil || status != http.StatusOK {
		t.Fatalf("%d %v", status, err)
	}
	return doc
}

// schema gives the schema of an answer.
func (d *apiDoc) schema(path, method, status, kind string) any {
	d.t.Helper()
	op := d.Paths[path][method]
	if op == nil {
		d.t.Fatalf("the OpenAPI file has no %s %s", method, path)
	}
	media, _ := op["responses"].(map[string]any)[status].(map[string]any)["content"].(map[string]any)[kind].(map[string]any)
	if media == nil {
		d.t.Fatalf("%s %s answers no %s with %s", method, path, kind, status)
	}
	return media["schema"]
}

// check says where a value is not as its schema says.
func (d *apiDoc) check(at string, value, schema any) []string {
	s := schema.(map[string]any)
	if ref, is := s["$ref"].(string); is {
		return d.check(at, value, d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")])
	}
	if choices, is := s["oneOf"].([]any); is {
		var all []string
		for _, choice := range choices {
			wrong := d.check(at, value, choice)
			if wrong == nil {
				return nil
			}
			all = append(all, wrong...)
		}
		return all
	}
	if types, is := s["type"].([]any); is && !slices.Contains(types, any(typeOf(value, types))) {
		return []string{fmt.Sprintf("%s is %v, not of %v", at, value, types)}
	}
	if enum, is := s["enum"].([]any); is && !slices.Contains(enum, value) && value != nil {
		return []string{fmt.Sprintf("%s is %v, not one of %v", at, value, enum)}
	}
	var wrong []string
	switch v := value.(type) {
	case string:
		if s["format"] == "date-time" {
			if _, err := time.Parse(time.RFC3339, v); err != nil {
				wrong = append(wrong, at+": "+err.Error())
			}
		}
	case []any:
		for i, item := range v {
			wrong = append(wrong, d.check(fmt.Sprintf("%s[%d]", at, i), item, s["items"])...)
		}
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			switch more := s["additionalProperties"]; {
			case properties[name] != nil:
				wrong = append(wrong, d.check(at+"."+name, v[name], properties[name])...)
			case more == false:
				wrong = append(wrong, at+"."+name+" is not described")
			case more != nil && more != true:
				wrong = append(wrong, d.check(at+"."+name, v[name], more)...)
			}
		}
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, there := v[name.(string)]; !there {
				wrong = append(wrong, fmt.Sprintf("%s.%s is missing", at, name))
			}
		}
	}
	return wrong
}

// typeOf names a JSON value's type as one of types does.
func typeOf(value any, types []any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case float64:
		if v == math.Trunc(v) && slices.Contains(types, any("integer")) {
			return "integer"
		}
	}
	return "number"
}

func TestTheOpenAPIFileDescribesWhatALiveServerAnswers(t *testing.T) {
	c := startCluster(t, 2)
	h := startLogHost(t)
	job, allocs := c.runJob(h, 2)
	h.write(allocs[0], 10, "hello")
	c.commit(&state.DrainNodes{Nodes: []string{"w"}, Reason: "fan"})
	queue := muster.NewQueueSpec("nlp")
	queue.Allow, queue.Quota, queue.MaxGPUs, queue.Defaults.TimeLimit = []string{"ann"}, []muster.Quota{{Model: "H100", GPUs: 8}}, 16, time.Hour
	queue.Caps = muster.QueueCaps{HasPriority: true, Priority: 60, StopAfter: time.Minute}
	queue.Constraints = []muster.Constraint{{Attribute: "label.pool", Operator: muster.OpExists}}
	c.commit(&state.ApplyQueues{Queues: []muster.QueueSpec{queue}, Policy: muster.DefaultPolicy()})
	base := c.members[1].web()
	doc := fetchAPI(t, base)
	answers := map[string]map[string]string{ // by path and method: what to ask
		"/v1/jobs":             {"get": "/v1/jobs?limit=1"},
		"/v1/jobs/{id}":        {"get": fmt.Sprintf("/v1/jobs/%d", job)},
		"/v1/jobs/{id}/why":    {"get": fmt.Sprintf("/v1/jobs/%d/why", job)},
		"/v1/jobs/{id}/logs":   {"get": fmt.Sprintf("/v1/jobs/%d/logs?format=jsonl&rank=0", job)},
		"/v1/jobs/{id}:cancel": {"post": fmt.Sprintf("/v1/jobs/%d:cancel", job)},
		"/v1/nodes":            {"get": "/v1/nodes"},
		"/v1/gpus":             {"get": "/v1/gpus"},
		"/v1/queues":           {"get": "/v1/queues"},
		"/v1/servers":          {"get": "/v1/servers"},
		"/v1/openapi.json":     {"get": "/v1/openapi.json"},
		"/v1/events":           {"get": "/v1/events?after=1.0&object=w"},
		"/livez":               {"get": "/livez"},
		"/readyz":              {"get": "/readyz"},
	}
	answers["/v1/jobs"]["post"] = "/v1/jobs"
	for path, methods := range doc.Paths {
		for method := range methods {
			where, asked := answers[path][method]
			if !asked {
				t.Errorf("%s %s is in the OpenAPI file, and no test asks it", method, path)
				continue
			}
			body := ""
			if path == "/v1/jobs" && method == "post" {
				body = strings.Replace(smallJob, `"resources": {"gpus": 2}`, `"resources": {"gpus": 0}`, 1)
			}
			status, answer := ask(t, strings.ToUpper(method), base+where, body)
			if status != http.StatusOK {
				t.Errorf("%s %s: %d %s", method, where, status, answer)
				continue
			}
			kind := "application/json"
			if strings.HasSuffix(path, "z") {
				continue // text
			} else if strings.HasSuffix(path, "/logs") || path == "/v1/events" {
				kind = "application/jsonl"
				answer, _, _ = strings.Cut(answer, "\n")
			}
			var value any
			if err := json.Unmarshal([]byte(answer), &value); err != nil {
				t.Errorf("%s: %v", where, err)
			}
			for _, wrong := range doc.check(path, value, doc.schema(path, method, "200", kind)) {
				t.Error(wrong)
			}
		}
	}
	for path := range answers {
		if doc.Paths[path] == nil {
			t.Errorf("%s is answered, and not in the OpenAPI file", path)
		}
	}
	_, refusal := ask(t, "GET", base+"/v1/jobs/99", "")
	var value any
	_ = json.Unmarshal([]byte(refusal), &value)
	for _, wrong := range doc.check("refusal", value, doc.schema("/v1/jobs/{id}", "get", "default", "application/json")) {
		t.Error(wrong)
	}
}

// A job's spec as the server prints it is one that the description of requests takes, whole.
func TestTheOpenAPIFileDescribesEveryFieldOfAJob(t *testing.T) {
	doc := fetchAPI(t, startCluster(t, 1).members[0].web())
	spec := muster.DefaultJobSpec()
	spec.Name, spec.TimeLimit, spec.Labels = "whole", time.Hour, []muster.Label{{Key: "a", Value: "b"}}
	group := muster.DefaultGroup()
	group.Task.Command, group.Task.Args, group.Task.Dir = "true", []string{"x"}, "/tmp"
	group.Task.Resources = muster.Resources{GPUs: 2, MilliCores: 500, Memory: muster.GiB, Models: []string{"H100"}, MinMemory: muster.GiB}
	group.Within, group.Constraints = "node", []muster.Constraint{{Attribute: "node.name", Operator: "==", Value: "w"}}
	group.Checkpoint.Grace = time.Minute
	spec.Groups = []muster.Group{group}
	text, err := wire.SpecsJSON(wire.JobSpecOf(&spec))
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	body := doc.Paths["/v1/jobs"]["post"]["requestBody"].(map[string]any)["content"].(map[string]any)["application/json"].(map[string]any)["schema"]
	for _, wrong := range doc.check("body", value, body) {
		t.Error(wrong)
	}
	misspelt := map[string]any{"jobs": []any{map[string]any{"nam": "x"}}}
	if doc.check("body", misspelt, body) == nil {
		t.Error("a key that isn't known passes")
	}
}
