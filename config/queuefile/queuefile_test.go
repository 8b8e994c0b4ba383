package queuefile

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: -want +got\n%s", path, diff)
	}
}

func files(t *testing.T, pattern string, atLeast int) map[string][]byte {
	t.Helper()
	paths, _ := filepath.Glob(pattern)
	if len(paths) < atLeast {
		t.Fatalf("%d files %s", len(paths), pattern)
	}
	out := map[string][]byte{}
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = src
	}
	return out
}

func TestTheTableFitsItsStructs(t *testing.T) {
	if err := fileTable.Check(document{}); err != nil {
		t.Error(err)
	}
}

func TestValidFilesAreReadWithWhatTheyInherit(t *testing.T) {
	for path, src := range files(t, "testdata/valid/*.hcl", 3) {
		file, diags := Parse(path, src)
		if len(diags) > 0 {
			t.Errorf("%s: %v", path, diags)
			continue
		}
		body, err := json.MarshalIndent(file, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, strings.TrimSuffix(path, ".hcl")+".json", append(body, '\n'))
	}
}

func TestMistakesAreShownAtTheirLines(t *testing.T) {
	for path, src := range files(t, "testdata/invalid/*.hcl", 14) {
		file, diags := Parse(filepath.Base(path), src)
		if file != nil || !diags.HasErrors() {
			t.Errorf("%s was taken", path)
		}
		var out bytes.Buffer
		if err := schema.WriteText(&out, map[string][]byte{filepath.Base(path): src}, diags, 100, false); err != nil {
			t.Fatal(err)
		}
		golden(t, strings.TrimSuffix(path, ".hcl")+".txt", out.Bytes())
	}
}

func TestWhatIsWrittenReadsAsItWas(t *testing.T) {
	check := func(file *File) {
		t.Helper()
		src := Write(file.Queues, file.Policy)
		again, diags := Parse("written.hcl", src)
		if diags.HasErrors() {
			t.Fatalf("%v\n%s", diags, src)
		}
		if diff := cmp.Diff(file, again); diff != "" {
			t.Fatalf("-was +is\n%s\n%s", diff, src)
		}
	}
	for path, src := range files(t, "testdata/valid/*.hcl", 3) {
		file, diags := Parse(path, src)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		check(file)
	}
	r := rand.New(rand.NewSource(1))
	for range 300 {
		check(anyFile(r))
	}
}

// anyFile makes a tree of what may be said, as it is once children have inherited.
func anyFile(r *rand.Rand) *File {
	file := &File{Policy: muster.DefaultPolicy()}
	some := func(n int) int { return max(0, r.Intn(2*n)-n) }
	var grow func(parent *muster.QueueSpec, depth int)
	grow = func(parent *muster.QueueSpec, depth int) {
		for i := range r.Intn(4) {
			q := muster.NewQueueSpec(fmt.Sprintf("%c-%d", 'a'+r.Intn(26), i))
			if parent != nil {
				q.Name = parent.Name + "/" + q.Name
				q.Allow, q.Defaults, q.Caps = parent.Allow, parent.Defaults, parent.Caps
			}
			if r.Intn(3) == 0 {
				q.Allow = [][]string{{"ann", "group:x y"[:7]}, {muster.Everyone}, {"${a}"}}[r.Intn(3)]
			}
			if r.Intn(3) == 0 {
				q.Caps.TimeLimit = 48*time.Hour + time.Duration(r.Intn(1e6))*time.Second
				q.Caps.StopAfter = time.Hour
			}
			if r.Intn(3) == 0 {
				q.Defaults.TimeLimit = time.Duration(1+r.Intn(1e5)) * time.Second
				q.Defaults.HasPriority, q.Defaults.Priority = true, r.Intn(50)
			}
			if r.Intn(3) == 0 {
				q.Caps.HasPriority, q.Caps.Priority = true, 50+r.Intn(50)
			}
			if parent == nil && r.Intn(3) == 0 { // what children have must be part of it
				q.Quota = [][]muster.Quota{{{GPUs: 5}}, {{Model: "A100 80GB", GPUs: 1}, {Model: "H100", GPUs: 7}}}[r.Intn(2)]
			}
			q.Weight = muster.Milli(1 + some(5000))
			q.Charge = muster.Milli(some(2000))
			q.MaxGPUs, q.UserGPUs, q.MaxRunning, q.MaxPending = 10*some(50), some(50), some(50), some(50)
			q.MinRuntime = time.Duration(some(1e9))
			if r.Intn(3) == 0 {
				q.Constraints = []muster.Constraint{{Attribute: "label.a", Operator: muster.OpEqual, Value: "%{x} \"y\""},
					{Attribute: "label.b", Operator: muster.OpExists}}
			}
			file.Queues = append(file.Queues, q)
			if depth > 1 {
				grow(&q, depth-1)
			}
		}
	}
	grow(nil, 3)
	slices.SortFunc(file.Queues, func(a, b muster.QueueSpec) int { return strings.Compare(a.Name, b.Name) })
	file.Queues = slices.CompactFunc(file.Queues, func(a, b muster.QueueSpec) bool { return a.Name == b.Name })
	p := &file.Policy
	p.FairShare = r.Intn(2) == 0
	p.Order, p.Backfill = muster.Orders[r.Intn(3)], muster.Backfills[r.Intn(3)]
	p.Preemption, p.Objective = muster.Preemptions[r.Intn(3)], muster.ObjectiveThroughput
	p.Reservations, p.MaxPreemptions, p.WideGPUs = some(50), some(50), some(50)
	p.HalfLife, p.Round, p.WideAfter = time.Hour+time.Duration(some(1e12)), time.Duration(some(1e12)), time.Duration(some(1e12))
	return file
}

func TestTheDefaultsOfTheTableAreThoseOfTheStructs(t *testing.T) {
	write := func(b *schema.Body, except ...string) string {
		out := ""
		for i := range b.Attrs {
			if a := &b.Attrs[i]; a.Default != "" && !slices.Contains(except, a.Name) {
				out += a.Name + " = " + a.Default + "\n"
			}
		}
		return out
	}
	said := "queue \"a\" {\n" + write(&queueTable, "allow") + "}\nscheduling {\n" + write(&schedulingTable) +
		"wide {\n" + write(schedulingTable.Blocks[0].Body) + "}\n}\n"
	full, diags := Parse("full.hcl", []byte(said))
	if diags.HasErrors() {
		t.Fatalf("%v\n%s", diags, said)
	}
	short, _ := Parse("short.hcl", []byte("queue \"a\" {\n}\n"))
	if diff := cmp.Diff(short, full); diff != "" {
		t.Errorf("-left out +written\n%s", diff)
	}
}

func TestHintsShowWhatCanBeWritten(t *testing.T) {
	for _, h := range hints {
		if h.HCL == "" {
			continue
		}
		written := h.Written(h.Example)
		_, top := Parse("hint.hcl", []byte(written))
		_, inside := Parse("hint.hcl", []byte("queue \"a\" {\n"+written+"\n}\n"))
		if top.HasErrors() && inside.HasErrors() {
			t.Errorf("the hint for %q is not valid: %v", h.Word, inside)
		}
	}
}

func TestAQueuesFileIsToldFromOneOfJobs(t *testing.T) {
	for source, want := range map[string]bool{
		"queue \"a\" {\n}\n":                true,
		"scheduling {\n}\n":                 true,
		"job \"a\" {\n  queue = \"b\"\n}\n": false,
		"queue \"a\" {":                     false,
		"":                                  false,
	} {
		if got := IsQueueFile("some.hcl", []byte(source)); got != want {
			t.Errorf("%q: %t", source, got)
		}
	}
}

func TestAServersRefusalIsShownAtItsLine(t *testing.T) {
	src := []byte("queue \"research\" {\n  queue \"nlp\" {\n    max_gpus = 8\n  }\n}\n")
	for field, line := range map[string]int{"research/nlp:max_gpus": 3, "research/nlp:user_gpus": 2, "research/nlp:": 2, "research:caps.priority": 1} {
		d := Diagnose("q.hcl", src, &muster.Error{Message: "no", Field: field})
		if d.Subject == nil || d.Subject.Start.Line != line {
			t.Errorf("%s: %v", field, d.Subject)
		}
	}
	if d := Diagnose("q.hcl", src, &muster.Error{Message: "queue \"gone\" cannot be removed", Field: ""}); d.Subject != nil {
		t.Errorf("%v", d.Subject)
	}
}

// What the documentation shows can be applied; the example too.
func TestWhatTheDocumentationShowsIsValid(t *testing.T) {
	doc, err := os.ReadFile("../../docs/queues.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(doc), "```hcl\n")[1:]
	if len(blocks) < 2 {
		t.Fatalf("%d blocks of HCL", len(blocks))
	}
	for _, block := range blocks {
		src, _, _ := strings.Cut(block, "```")
		if _, diags := Parse("docs/queues.md", []byte(src)); diags.HasErrors() {
			t.Errorf("%v\n%s", diags, src)
		}
	}
	for _, b := range []*schema.Body{&queueTable, &schedulingTable} {
		for i := range b.Attrs {
			if a := &b.Attrs[i]; !strings.Contains(string(doc), "| `"+a.Name+"` |") {
				t.Errorf("docs/queues.md does not describe %s", a.Name)
			}
		}
	}
	for path, src := range files(t, "../../examples/queues.hcl", 1) {
		if _, diags := Parse(path, src); diags.HasErrors() {
			t.Errorf("%v", diags)
		}
	}
}

func TestAPlanSaysWhatAFileChanges(t *testing.T) {
	parse := func(src string) *File {
		file, diags := Parse("q.hcl", []byte(src))
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		return file
	}
	old := parse("queue \"a\" {\n  gpus = 8\n}\nqueue \"b\" {\n}\nqueue \"default\" {\n  max_gpus = 4\n}\n")
	now := parse("queue \"a\" {\n  gpus = { H100 = 16 }\n  weight = 2\n  queue \"c\" {\n    max_running = 3\n  }\n}\nscheduling {\n  order = \"fifo\"\n}\n")
	var got []string
	for _, c := range Diff(old, now) {
		got = append(got, c.String())
	}
	want := []string{
		"queue a: weight 1 → 2", "queue a: gpus 8 → 16 H100", "queue a/c: added", "queue a/c: max_running (as usual) → 3",
		"queue b: removed", "queue default: max_gpus 4 → (as usual)", "scheduling: order fair → fifo",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if same := Diff(now, now); len(same) > 0 {
		t.Errorf("%v", same)
	}
}

func FuzzParse(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*/*.hcl")
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, diags := Parse("fuzz.hcl", src)
		if (file == nil) != diags.HasErrors() {
			t.Fatalf("%v %v", file, diags)
		}
		if file == nil {
			return
		}
		written := Write(file.Queues, file.Policy)
		again, diags := Parse("written.hcl", written)
		if diags.HasErrors() || !cmp.Equal(file, again) {
			t.Fatalf("%v\n%s\n%s", diags, written, cmp.Diff(file, again))
		}
	})
}
