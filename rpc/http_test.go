package rpc_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// web makes a server answer HTTP and gives its base URL.
func (m *fakeMember) web() string {
	t := m.cluster.t
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = m.rpc.ServeHTTP(l, nil) }()
	t.Cleanup(func() { m.rpc.Stop(); <-served })
	return "http://" + l.Addr().String()
}

// ask makes a request and gives status and body.
func ask(t *testing.T, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(soon(t), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(text)
}

var varying = regexp.MustCompile(`127\.0\.0\.1:\d+|"digest": "[0-9a-f]{16}"`)

// golden compares a JSON body with a file; what differs from run to run is masked.
func golden(t *testing.T, name, body string) {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(body), "", "  "); err != nil {
		t.Fatalf("%s: %v: %s", name, err, body)
	}
	got := varying.ReplaceAllStringFunc(indented.String(), func(s string) string {
		if strings.HasPrefix(s, `"digest`) {
			return `"digest": "DIGEST"`
		}
		return "ADDRESS"
	})
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not as it was; if that is meant: go test ./rpc -update\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

const smallJob = `{"schema": "muster.v1", "request_id": "r1", "jobs": [{"name": "hello", "labels": {"team": "nlp"},
	"task": {"hello": {"command": "nvidia-smi", "dir": "/tmp", "resources": {"gpus": 2}}}}]}`

func TestTheHTTPAPIAnswersInTheNamesOfMusterV1(t *testing.T) {
	c := startCluster(t, 3)
	base := c.members[1].web() // a follower: any server answers
	node, _ := c.commit(&state.RegisterNode{Node: *nodeNamed("w1", "127.0.0.1:1")})
	for range 2 { // the same request twice makes one job
		status, body := ask(t, "POST", base+"/v1/jobs", smallJob)
		if status != http.StatusOK {
			t.Fatalf("submitted: %d %s", status, body)
		}
		golden(t, "submitted", body)
	}
	placed, _ := c.members[0].state.Snapshot().Node(node.Node)
	cores, memory := placed.Share(&muster.Resources{GPUs: 2})
	c.placeRank(1, 1, state.RankPlacement{Node: node.Node, Slots: 0b11, MilliCores: cores, Memory: memory})
	for name, path := range map[string]string{
		"jobs":          "/v1/jobs",
		"jobs-filtered": "/v1/jobs?state=failed,held&user=bob&queue=default&limit=5&consistency=stale",
		"job":           "/v1/jobs/1",
		"why":           "/v1/jobs/1/why",
		"nodes":         "/v1/nodes",
		"gpus":          "/v1/gpus?consistency=stale",
		"servers":       "/v1/servers",
	} {
		t.Run(name, func(t *testing.T) {
			status, body := ask(t, "GET", base+path, "")
			if status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			golden(t, name, body)
		})
	}
	status, body := ask(t, "POST", base+"/v1/jobs/1:cancel", "")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	golden(t, "cancelled", body)
}

func TestTheHTTPAPIRefusesWithAReasonAndItsStatus(t *testing.T) {
	c := startCluster(t, 1)
	base := c.members[0].web()
	for _, refused := range []struct {
		name, method, path, body string
		status                   int
		code                     string
		headers                  []string
	}{
		{"a path that is not there", "GET", "/v1/nothing", "", 404, "not_found", nil},
		{"a job that is not there", "GET", "/v1/jobs/7", "", 404, "not_found", nil},
		{"a name for a number", "GET", "/v1/jobs/train", "", 400, "usage", nil},
		{"the wrong method", "DELETE", "/v1/jobs", "", 405, "usage", nil},
		{"the wrong method for a verb", "GET", "/v1/jobs/1:cancel", "", 405, "usage", nil},
		{"a verb that is not there", "POST", "/v1/jobs/1:polish", "", 405, "usage", nil},
		{"an unknown parameter", "GET", "/v1/jobs?stat=held", "", 400, "usage", nil},
		{"an unknown state", "GET", "/v1/jobs?state=tired", "", 400, "usage", nil},
		{"a bad limit", "GET", "/v1/jobs?limit=-1", "", 400, "usage", nil},
		{"an unknown consistency", "GET", "/v1/jobs?consistency=none", "", 400, "usage", nil},
		{"no JSON", "POST", "/v1/jobs", "{", 400, "invalid", nil},
		{"no jobs", "POST", "/v1/jobs", "{}", 400, "invalid", nil},
		{"HCL", "POST", "/v1/jobs", `{"hcl": "job \"a\" {}"}`, 400, "invalid", nil},
		{"a form", "POST", "/v1/jobs", smallJob, 400, "usage", []string{"Content-Type", "text/plain"}},
		{"a page of elsewhere", "POST", "/v1/jobs", smallJob, 403, "denied", []string{"Origin", "https://example.org", "Sec-Fetch-Site", "cross-site"}},
		{"another host's name", "GET", "/v1/jobs", "", 403, "denied", []string{"Host", "rebound.example.org"}},
		{"too much", "POST", "/v1/jobs", `{"jobs": "` + strings.Repeat("x", 5<<20) + `"}`, 400, "invalid", nil},
		{"nothing to cancel", "POST", "/v1/jobs/7:cancel", "", 404, "not_found", nil},
	} {
		t.Run(refused.name, func(t *testing.T) {
			status, body := ask(t, refused.method, base+refused.path, refused.body, refused.headers...)
			var e wire.ErrorJSON
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				t.Fatalf("%d %s: %v", status, body, err)
			}
			if status != refused.status || e.Error.Code != refused.code || e.Error.Message == "" {
				t.Errorf("%d %s, want %d with code %s", status, body, refused.status, refused.code)
			}
		})
	}
	if jobs := c.members[0].jobs(); len(jobs) != 0 {
		t.Errorf("jobs %v were made", jobs)
	}
}

func TestAServerIsReadyWhileALeaderConfirmsItself(t *testing.T) {
	c := startCluster(t, 2)
	base := c.members[1].web()
	if status, body := ask(t, "GET", base+"/readyz", ""); status != http.StatusOK {
		t.Errorf("with a leader: %d %s", status, body)
	}
	c.elect(-1)
	if status, body := ask(t, "GET", base+"/readyz", ""); status != http.StatusServiceUnavailable || !strings.Contains(body, "no leader") {
		t.Errorf("without: %d %s", status, body)
	}
	if status, _ := ask(t, "GET", base+"/livez", ""); status != http.StatusOK {
		t.Error("without a leader it lives all the same")
	}
	if status, body := ask(t, "GET", base+"/v1/jobs?consistency=stale", ""); status != http.StatusOK {
		t.Errorf("a stale read without a leader: %d %s", status, body)
	}
}
