package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares what JSON clients see with a file that only ever grows.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		t.Fatal(err)
	}
	path := "testdata/json/" + name
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestTheJSONOfJobs(t *testing.T) {
	c := newCluster(t)
	failed := c.submit("ann", "train", 2, 2, muster.Label{Key: "team", Value: "nlp"})
	c.run(failed, 1, 2)
	c.finish(failed, 3)
	c.submit("ann", "eval", 1, 0)
	running := c.submit("bob", "embed", 1, 1)
	c.run(running, 2)
	reply, err := c.read().Jobs(&ListJobsRequest{User: "*", Ended: true}, "ann")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "jobs.json", ItemsOf(JobsJSON(reply.Jobs)))
	golden(t, "job.json", ItemsOf(JobsJSON([]*JobInfo{c.job(failed)})))
}

func TestTheJSONOfEvents(t *testing.T) {
	c := newCluster(t)
	id := c.submit("ann", "train", 2, 2)
	c.run(id, 1, 2)
	c.finish(id, 3)
	events, _, _ := c.read().Events(EventFilter{}, 0, 0, 100)
	golden(t, "events.json", ItemsOf(EventsJSON(events)))
	filter, err := c.read().EventFilterOf("train", "ann")
	if err != nil || filter.Job != id {
		t.Errorf("%+v, %v", filter, err)
	}
	if _, err := c.read().EventFilterOf("train", "bob"); muster.KindOf(err) != muster.KindNotFound {
		t.Errorf("%v", err)
	}
}

func TestTheJSONOfNodesAndGPUs(t *testing.T) {
	c := newCluster(t)
	c.run(c.submit("ann", "train", 1, 2), 2)
	c.do(&state.DrainNodes{Header: state.Header{User: "root"}, Nodes: []string{"w2"}, Reason: "fan", HasDeadline: true, Deadline: time.Hour})
	reply, err := c.read().Nodes(nil, map[uint32]string{1: "silent for 4 s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range reply.Nodes {
		n.Node.Gpus = n.Node.Gpus[:3] // eight would say no more
	}
	golden(t, "nodes.json", ItemsOf(NodesJSON(reply.Nodes)))
	golden(t, "gpus.json", ItemsOf(GPUsJSON(reply.Nodes)))
}

func TestTheJSONOfServersReasonsAndErrors(t *testing.T) {
	golden(t, "servers.json", ItemsOf(ServersJSON([]*ServerInfo{
		{Id: "s1-a", Name: "s1", Address: "10.0.0.1:4691", Http: "10.0.0.1:4690", Leader: true, Term: 3, AppliedIndex: 99,
			Digest: "00ff", Voter: true, Version: "0.1.0"},
		{Id: "s2-b", Name: "s2", Address: "10.0.0.2:4691", Error: "it does not answer"},
	})))
	golden(t, "why.json", ItemsOf(WhyJSONOf(&WhyReply{
		Job:      &JobInfo{Id: 7, Name: "train", State: "pending", SubmittedAt: 1_790_000_000_000},
		Position: 3, Of: 14, Headline: "needs 2 nodes with 8 free H100 each; now 1 such node",
		Reasons: []*WhyReason{{Kind: "short", Count: 1, Nodes: []string{"gpu-13"}, Detail: "6 of 8 free"}, {Kind: "wrong gpu", Never: true, Count: 4}},
		Ahead:   []*JobRef{{Id: 5, Name: "seg-9"}}, AheadCount: 2, Note: "so far",
	})))
	golden(t, "error.json", ErrorJSONOf(muster.Errorf(muster.KindInvalid, "count 0 is not between 1 and 10000").WithHint("Say 1"),
		DiagnosticJSON{File: "train.hcl", Line: 7, Column: 5, Summary: "Wrong value", Detail: "…"}))
	golden(t, "submitted.json", ItemsOf([]SubmittedJSON{{ID: 1042, Name: "train-7b"}}))
	if body, _ := json.Marshal(ErrorJSONOf(errors.New("disk"))); string(body) != `{"error":{"code":"error","message":"disk","hint":""}}` {
		t.Errorf("%s", body)
	}
	if body, _ := json.Marshal(ItemsOf[JobJSON](nil)); string(body) != `{"schema":"muster.v1","items":[]}` {
		t.Errorf("%s", body)
	}
}

// everything is a spec with all that can be said.
func everything() *muster.JobSpec {
	s := usualSpec()
	s.Name, s.Priority, s.TimeLimit = "everything", 0, 72*time.Hour
	s.Labels = []muster.Label{{Key: "team", Value: "nlp"}}
	g := &s.Groups[0]
	g.Name, g.Count, g.Within = "trainer", 4, "rack"
	g.Constraints = []muster.Constraint{{Attribute: "label.zone", Operator: muster.OpIn, Value: "eu-1,eu-2"},
		{Attribute: "label.ib", Operator: muster.OpExists}}
	g.Retry = muster.Retry{Attempts: 2, On: []muster.Class{muster.ClassExit}, ExitCodes: []int{85}, Delay: 0, MaxDelay: time.Minute}
	g.Checkpoint = muster.Checkpoint{Grace: 90 * time.Second, Signal: "SIGUSR2", To: muster.ToAll}
	g.Disconnect = muster.Disconnect{StopAfter: 5 * time.Minute, Replace: muster.ReplaceAfterStop}
	t := &g.Task
	t.Command, t.Args, t.Script, t.Dir = "", nil, "exec train <in >$${OUT} && echo ${rank}\n", "/data/train"
	t.Env = []muster.EnvVar{{Name: "A", Value: "1"}, {Name: "NCCL_DEBUG", Value: "WARN"}}
	t.KillSignal, t.KillTimeout, t.SuccessCodes = "SIGINT", 0, []int{0, 3}
	t.Logs = muster.Logs{MaxSize: 10 * muster.MiB, MaxFiles: 2}
	t.Resources = muster.Resources{GPUs: 8, MilliCores: 16500, Memory: 128 * muster.GiB, Exclusive: true, Models: []string{"H100", "H200"},
		MinMemory: 80 * muster.GiB}
	return s
}

func TestASpecInJSONComesBackAsItWas(t *testing.T) {
	for name, spec := range map[string]*muster.JobSpec{"usual": usualSpec(), "everything": everything()} {
		if err := spec.Validate(); err != nil {
			t.Fatal(err)
		}
		body, err := SpecsJSON(JobSpecOf(spec))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "spec-"+name+".json", json.RawMessage(body))
		got, err := ParseSubmitJSON(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]*muster.JobSpec{spec}, got.Jobs); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestWhatASpecAsksOfItsPlaceAndItsFilesIsInItsJSON(t *testing.T) {
	spec := everything()
	g := &spec.Groups[0]
	g.Prefer, g.Patience, g.MixedModels, g.OnlyQuota = "nvlink", 10*time.Minute, true, true
	g.Affinities = []muster.Affinity{{Attribute: "label.rack", Value: "r7", Weight: -50}}
	g.Spreads = []muster.Spread{{Attribute: "label.rack"}}
	g.Checkpoint.Every, g.Disconnect.Replace = 30*time.Minute, muster.ReplaceImmediately
	g.Task.Start, g.Task.EnvFromFile, g.Task.Upload = muster.StartFirst, []string{"/home/ann/.env"}, []string{"train.py", "conf/"}
	g.Task.Logs.Path = "logs/${job.id}.out"
	g.Task.Resources.Share, g.Task.Resources.MIG, g.Task.Resources.Disk = 500, "1g.10gb", 10*muster.GiB
	body, err := SpecsJSON(JobSpecOf(spec))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "spec-wishes.json", json.RawMessage(body))
	var file struct{ Jobs []json.RawMessage }
	if err := json.Unmarshal(body, &file); err != nil {
		t.Fatal(err)
	}
	var d jsonReader
	got := d.job("jobs[0]", file.Jobs[0])
	if got.FillDefaults(); d.err != nil {
		t.Fatal(d.err)
	}
	if diff := cmp.Diff(spec, got); diff != "" {
		t.Error(diff)
	}
}

func TestASmallJobInJSONGetsTheDefaults(t *testing.T) {
	got, err := ParseSubmitJSON([]byte(`{"request_id": "r1", "jobs": [
		{"name": "hello", "task": {"hello": {"command": "nvidia-smi", "dir": "${task.dir}", "resources": {"gpus": 1, "cores": 0.5}}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := muster.DefaultJobSpec()
	want.Name, want.PriorityOfQueue = "hello", true
	g := muster.DefaultGroup()
	g.Name, g.Task.Name, g.Task.Command, g.Task.Resources = "hello", "hello", "nvidia-smi", muster.Resources{GPUs: 1, MilliCores: 500}
	want.Groups = []muster.Group{g}
	if diff := cmp.Diff(&SubmitJSON{RequestID: "r1", Jobs: []*muster.JobSpec{&want}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAMistakeInJSONIsNamedWithItsPlace(t *testing.T) {
	job := func(s string) string { return `{"jobs": [{"name": "a", ` + s + `}]}` }
	task := func(s string) string { return job(`"task": {"t": {"command": "true", ` + s + `}}`) }
	for _, c := range []struct{ body, field, message string }{
		{``, "", "no JSON"},
		{`[]`, "", "an object is expected"},
		{`{"jobs": []`, "", "no JSON"},
		{`{"jobs": []} x`, "", "no JSON"},
		{`{"jobs": []}`, "jobs", "no job"},
		{`{}`, "jobs", "no job"},
		{`{"jobs": {}}`, "jobs", "a list: […] is expected"},
		{`{"jobs": null}`, "jobs", "is expected"},
		{`{"schema": "muster.v2"}`, "schema", "isn't known"},
		{`{"hcl": ""}`, "hcl", "empty"},
		{`{"hcl": "job {}", "jobs": []}`, "hcl", "one of the two"},
		{`{"jobs": [], "variables": {}}`, "variables", "only a job file"},
		{`{"hcl": "job {}", "variables": {"lr": 1, "lr": 2}}`, "variables.lr", "twice"},
		{`{"jobs": [], "jobs": []}`, "jobs", "twice"},
		{`{"jobs": [{"nodes": 2}]}`, "jobs[0].nodes", `"nodes" is not expected here`},
		{`{"jobs": [{"name": 5}]}`, "jobs[0].name", "a text in quotes is expected"},
		{job(`"array": {"size": 3}`), "jobs[0].array", "not supported yet"},
		{job(`"type": "service"`), "jobs[0].type", "say one of batch"},
		{job(`"priority": 1.5`), "jobs[0].priority", "a whole number"},
		{job(`"priority": 99999999999`), "jobs[0].priority", "a whole number"},
		{job(`"time_limit": 60`), "jobs[0].time_limit", `as in "90s"`},
		{job(`"time_limit": "60"`), "jobs[0].time_limit", "has no unit"},
		{job(`"labels": {"a": 1}`), "jobs[0].labels.a", "text"},
		{`{"jobs": [{"name": "a", "task": {"t": {"command": "true"}}, "disconnect": {"replace": "immediately"}}]}`,
			"jobs[0].groups[0].disconnect.replace", "not supported yet"},
		{job(`"group": {"a": {}}, "count": 2`), "jobs[0].count", "beside group"},
		{job(`"group": {"a": {"cuont": 2}}`), "jobs[0].group.a.cuont", "not expected"},
		{job(`"constraint": [{"attribute": "label.a", "val": "x"}]`), "jobs[0].constraint[0].val", "known are attribute, operator, value"},
		{job(`"topology": {"patience": "1"}`), "jobs[0].topology.patience", "no unit"},
		{job(`"affinity": [{"attribute": "label.a", "wieght": 5}]`), "jobs[0].affinity[0].wieght", "not expected"},
		{job(`"spread": {}`), "jobs[0].spread", "a list"},
		{task(`"start": "last"`), "jobs[0].task.t.start", "say one of each, first"},
		{task(`"resources": {"gpus": 1, "gpu": {"share": 2}}`), "jobs[0].task.t.resources.gpu.share", "as in 0.5"},
		{job(`"retry": {"on": ["exit", "bug"]}`), "jobs[0].retry.on[1]", "say one of"},
		{job(`"checkpoint": {"to": "both"}`), "jobs[0].checkpoint.to", "say one of main, all"},
		{job(`"task": {"a": {"command": "x"}, "b": {}}`), "jobs[0].task.b", "second task is not supported yet"},
		{task(`"image": "x"`), "jobs[0].task.t.image", "not supported yet"},
		{task(`"dir": ""`), "jobs[0].task.t.dir", "leave it out"},
		{task(`"args": "x"`), "jobs[0].task.t.args", "list"},
		{task(`"args": ["x", 1]`), "jobs[0].task.t.args[1]", "text"},
		{task(`"resources": {"memory": "64G"}`), "jobs[0].task.t.resources.memory", "no unit that muster knows"},
		{task(`"resources": {"memory": 64}`), "jobs[0].task.t.resources.memory", `as in "64GiB"`},
		{task(`"resources": {"memory": "0B"}`), "jobs[0].task.t.resources.memory", "not above 0"},
		{task(`"resources": {"cores": "1"}`), "jobs[0].task.t.resources.cores", "number of cores"},
		{task(`"resources": {"cores": 1e3}`), "jobs[0].task.t.resources.cores", "number of cores"},
		{task(`"resources": {"cores": 0.0001}`), "jobs[0].task.t.resources.cores", "three decimals"},
		{task(`"resources": {"gpu": {"count": 2}}`), "jobs[0].task.t.resources.gpu.count", "not expected"},
		{task(`"kill_signal": "TERM"`), "jobs[0].groups[0].task.kill_signal", "no signal"},
		{job(`"count": 0, "task": {"t": {"command": "true"}}`), "jobs[0].groups[0].count", "count 0"},
		{job(`"priority": 5`), "jobs[0].groups[0].task", "nothing to run"},
	} {
		_, err := ParseSubmitJSON([]byte(c.body))
		var e *muster.Error
		if !errors.As(err, &e) || e.Kind != muster.KindInvalid || e.Field != c.field || !strings.Contains(e.Message, c.message) {
			t.Errorf("%s: %+v, want %q at %q", c.body, err, c.message, c.field)
		}
	}
}

func FuzzParseSubmitJSON(f *testing.F) {
	for _, spec := range []*muster.JobSpec{usualSpec(), everything()} {
		body, err := SpecsJSON(JobSpecOf(spec))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ParseSubmitJSON(body)
		if err != nil {
			return
		}
		for _, spec := range got.Jobs {
			again, err := SpecsJSON(JobSpecOf(spec))
			if err != nil {
				t.Fatal(err)
			}
			back, err := ParseSubmitJSON(again)
			if err != nil {
				t.Fatalf("%s: %v", again, err)
			}
			if diff := cmp.Diff(spec, back.Jobs[0]); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestVariablesOfAJobFileAreTextAsOnACommandLine(t *testing.T) {
	got, err := ParseSubmitJSON([]byte(`{"hcl": "job {}", "variables": {"name": "a b", "n": 3, "rate": 0.10, "on": true, "list": ["x", 2]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"name": "a b", "n": "3", "rate": "0.10", "on": "true", "list": `["x", 2]`}
	if got.HCL != "job {}" || !maps.Equal(got.Variables, want) {
		t.Errorf("%q %q, want %q", got.HCL, got.Variables, want)
	}
}

func TestACancelMayHaveABody(t *testing.T) {
	if got, err := ParseCancelJSON([]byte(`{"now": true, "request_id": "r"}`)); err != nil || !got.Now || got.RequestID != "r" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := ParseCancelJSON(nil); err != nil || got.Now {
		t.Errorf("an empty body: %+v %v", got, err)
	}
	if _, err := ParseCancelJSON([]byte(`{"signal": "USR1"}`)); err == nil {
		t.Error("what isn't known is refused")
	}
}
