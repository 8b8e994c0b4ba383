package rpc_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

func TestLogsOverHTTPAreLinesOfTextOrObjects(t *testing.T) {
	c := startCluster(t, 2)
	h := startLogHost(t)
	job, allocs := c.runJob(h, 2)
	h.write(allocs[0], 10, "a0", "a1")
	h.write(allocs[1], 20, "b0")
	base := c.members[1].web() + "/v1/jobs/" + muster.JobID(job).String() + "/logs"
	for query, want := range map[string]string{
		"":                               "[0@w] a0\n[0@w] a1\n[1@w] b0\n",
		"?rank=1":                        "b0\n",
		"?rank=0,1&lines=1":              "[0@w] a1\n[1@w] b0\n",
		"?stream=stderr":                 "",
		"?rank=1&format=jsonl":           `{"group":0,"rank":1,"attempt":1,"node":"w","stream":"stdout","time":"1970-01-01T00:00:00.02Z","text":"b0"}` + "\n",
		"?attempt=1&follow=false&rank=1": "b0\n",
	} {
		if status, body := ask(t, "GET", base+query, ""); status != http.StatusOK || body != want {
			t.Errorf("%s: %d %q, want %q", query, status, body, want)
		}
	}
	for query, want := range map[string]int{"?rank=7": 404, "?rank=x": 400, "?attempt=9": 404, "?format=xml": 400, "?follow=yes": 400, "?lines=0": 400} {
		if status, body := ask(t, "GET", base+query, ""); status != want {
			t.Errorf("%s: %d %s, want %d", query, status, body, want)
		}
	}
}

func TestFollowedLogsOverHTTPComeAsTheyAreWrittenAndEndWithTheServer(t *testing.T) {
	c := startCluster(t, 1)
	h := startLogHost(t)
	job, allocs := c.runJob(h, 1)
	base := c.members[0].web()
	r, _ := http.NewRequestWithContext(soon(t), "GET", base+"/v1/jobs/"+muster.JobID(job).String()+"/logs?follow=true", nil)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	lines := bufio.NewReader(reply.Body)
	for _, text := range []string{"one", "two"} {
		h.write(allocs[0], 1, text)
		if line, err := lines.ReadString('\n'); err != nil || line != text+"\n" {
			t.Fatalf("%q %v, want %q", line, err, text)
		}
	}
	c.members[0].rpc.Stop()
	if line, err := lines.ReadString('\n'); err == nil {
		t.Errorf("%q comes of a server that has stopped", line)
	}
}

func TestEventsOverHTTPAreObjectsThatComeAsTheyHappen(t *testing.T) {
	c := startCluster(t, 2)
	base := c.members[1].web()
	r, _ := http.NewRequestWithContext(soon(t), "GET", base+"/v1/events?follow=true", nil)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	client := c.client(rpc.Options{})
	lines := bufio.NewReader(reply.Body)
	var last wire.EventJSON
	for _, name := range []string{"one", "two"} {
		if _, err := client.Submit(soon(t), submission(name)); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil || json.Unmarshal(line, &last) != nil || last.Kind != "job.submitted" || last.Name != name {
			t.Fatalf("%s %v", line, err)
		}
	}
	_, all := ask(t, "GET", base+"/v1/events", "")
	if n := strings.Count(all, "\n"); n != 2 {
		t.Errorf("%d lines, want 2: %s", n, all)
	}
	first, _, _ := strings.Cut(all, "\n")
	_ = json.Unmarshal([]byte(first), &last)
	_, rest := ask(t, "GET", fmt.Sprintf("%s/v1/events?after=%d.%d", base, last.Index, last.Nth), "")
	if strings.Count(rest, "\n") != 1 || !strings.Contains(rest, `"name":"two"`) {
		t.Errorf("behind the first: %s", rest)
	}
	for query, want := range map[string]int{"?after=x": 400, "?since=yesterday": 400, "?object=nobody": 404, "?kind=job": 400} {
		if status, body := ask(t, "GET", base+"/v1/events"+query, ""); status != want {
			t.Errorf("%s: %d %s, want %d", query, status, body, want)
		}
	}
}

func TestAJobFileIsReadElsewhereAndItsMistakesAreNamed(t *testing.T) {
	c := startCluster(t, 1)
	parse := func(_ context.Context, source string, variables map[string]string) ([]*muster.JobSpec, []wire.DiagnosticJSON, error) {
		switch source {
		case "bad":
			return nil, []wire.DiagnosticJSON{{File: "job.hcl", Line: 3, Column: 1, Summary: "Unsupported argument", Detail: "…"}}, nil
		case "slow":
			return nil, nil, muster.Errorf(muster.KindInvalid, "the job file took too long to read")
		case "broken":
			return nil, nil, errors.New("no child process")
		}
		spec, err := specNamed(variables["name"]).Domain()
		return []*muster.JobSpec{spec}, nil, err
	}
	server := rpc.NewServer(rpc.Config{Local: c.members[0], User: agentUser, ParseJobs: parse})
	c.members[0].rpc.Stop()
	c.members[0].rpc = server
	base := c.members[0].web()
	status, body := ask(t, "POST", base+"/v1/jobs", `{"hcl": "good", "variables": {"name": "fine"}}`)
	if status != http.StatusUnprocessableEntity && status != http.StatusOK || status == http.StatusOK && !strings.Contains(body, `"name":"fine"`) {
		t.Errorf("%d %s", status, body)
	}
	var e wire.ErrorJSON
	status, body = ask(t, "POST", base+"/v1/jobs", `{"hcl": "bad"}`)
	if err := json.Unmarshal([]byte(body), &e); err != nil || status != http.StatusBadRequest || len(e.Error.Diagnostics) != 1 || e.Error.Diagnostics[0].Line != 3 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := ask(t, "POST", base+"/v1/jobs", `{"hcl": "slow"}`); status != http.StatusBadRequest || !strings.Contains(body, "too long") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := ask(t, "POST", base+"/v1/jobs", `{"hcl": "broken"}`); status != http.StatusInternalServerError {
		t.Errorf("%d %s", status, body)
	}
}

func TestWhatAServerAnswersIsCountedUnderNamesThatNobodyOutsideCanMake(t *testing.T) {
	c := startCluster(t, 1)
	base := c.members[0].web()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.members[0].rpc.Collectors()...)
	client := c.client(rpc.Options{})
	if _, err := client.ListJobs(soon(t), &wire.ListJobsRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.GetJob(soon(t), &wire.GetJobRequest{Job: &wire.JobRef{Id: 99}}); err == nil {
		t.Fatal("there is no job 99")
	}
	for _, path := range []string{"/v1/jobs", "/v1/jobs/7", "/v1/jobs/8", "/no/such/path", "/nor/this"} {
		ask(t, "GET", base+path, "")
	}
	ask(t, "POST", base+"/v1/jobs/7:cancel", "")
	want := `
# HELP muster_http_requests_total HTTP requests answered; route is a path of the API, or other.
# TYPE muster_http_requests_total counter
muster_http_requests_total{code="200",method="GET",route="/v1/jobs"} 1
muster_http_requests_total{code="404",method="GET",route="/v1/jobs/{id}"} 2
muster_http_requests_total{code="404",method="GET",route="other"} 2
muster_http_requests_total{code="404",method="POST",route="/v1/jobs/{id}:cancel"} 1
# HELP muster_rpc_requests_total gRPC calls answered; code is ok, canceled, or the kind of the error.
# TYPE muster_rpc_requests_total counter
muster_rpc_requests_total{code="not_found",method="Muster/GetJob"} 1
muster_rpc_requests_total{code="ok",method="Muster/ListJobs"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "muster_http_requests_total", "muster_rpc_requests_total"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
