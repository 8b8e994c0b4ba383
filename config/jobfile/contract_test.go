package jobfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

func TestTheTableFitsTheSpec(t *testing.T) {
	if err := fileTable.Check(document{}); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultsInTheTableAreThoseOfTheSpec(t *testing.T) {
	// Each default, written out, changes nothing.
	write := func(b *schema.Body) string {
		var out strings.Builder
		for i := range b.Attrs {
			if a := &b.Attrs[i]; a.Default != "" && !a.Later {
				out.WriteString(a.Name + " = " + a.Default + "\n")
			}
		}
		return out.String()
	}
	said := "job \"a\" {\n" + write(&jobTable) + "retry {\nattempts = 1\n" + strings.Replace(write(&retryTable), "attempts = 0", "", 1) +
		"}\ncheckpoint {\n" + write(&checkpointTable) + "}\ndisconnect {\n" + write(&disconnectTable) + "}\ntask \"a\" {\ncommand = \"x\"\n" +
		write(&taskTable) + "logs {\n" + write(&logsTable) + "}\nresources {\n" + write(&resourcesTable) + "}\n}\n}\n"
	short := "job \"a\" {\nretry {\nattempts = 1\n}\ntask \"a\" {\ncommand = \"x\"\n}\n}\n"
	a, diags := Parse("said.hcl", []byte(said), Options{})
	if diags.HasErrors() {
		t.Fatalf("%v in\n%s", diags, said)
	}
	b, diags := Parse("short.hcl", []byte(short), Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if diff := cmp.Diff(b[0], a[0]); diff != "" {
		t.Errorf("the table's defaults, written out, change the spec: -left out +written\n%s", diff)
	}
}

func TestCommandLinesGoOverTheFile(t *testing.T) {
	const file = "job \"a\" {\n  task \"a\" {\n    command = \"true\"\n  }\n}\n"
	jobs, diags := Parse("a.hcl", []byte(file), Options{Dir: "/w", Name: "b", Queue: "default", Priority: "7", TimeLimit: "2h"})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	j := jobs[0]
	if j.Name != "b" || j.Priority != 7 || muster.FormatDuration(j.TimeLimit) != "2h" || j.Groups[0].Task.Dir != "/w" || j.Groups[0].Name != "b" {
		t.Errorf("got %+v", *j)
	}
	for _, c := range []struct {
		opts Options
		want string
	}{
		{Options{Name: "B"}, "--name"}, {Options{Priority: "x"}, "--priority"}, {Options{Priority: "101"}, "--priority"},
		{Options{TimeLimit: "9"}, "--time-limit"},
	} {
		if _, diags := Parse("a.hcl", []byte(file), c.opts); len(diags) != 1 || !strings.Contains(diags[0].Summary+diags[0].Detail, c.want) {
			t.Errorf("%+v: %v, want one error about %s", c.opts, diags, c.want)
		}
	}
}

func TestWithoutAFolderDirMustBeAbsolute(t *testing.T) {
	const file = "job \"a\" {\n  task \"a\" {\n    command = \"true\"\n    dir = \"x\"\n  }\n}\n"
	if _, diags := Parse("a.hcl", []byte(file), Options{}); len(diags) != 1 || !strings.Contains(diags[0].Detail, "absolute") {
		t.Errorf("got %v", diags)
	}
}

func TestLinesThatEndAsOnWindowsReachTheShellWithout(t *testing.T) {
	file := "job \"a\" {\r\n  task \"a\" {\r\n    script = <<-EOT\r\n      echo a\r\n      echo $${B} ${rank}\r\n    EOT\r\n  }\r\n}\r\n"
	jobs, diags := Parse("a.hcl", []byte(file), Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if got := jobs[0].Groups[0].Task.Script; got != "echo a\necho $${B} ${rank}\n" {
		t.Errorf("the script is %q", got)
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name, src, want string
	}{
		{"large", strings.Repeat("#\n", 1<<19) + "#", "1 MiB"},
		{"zero byte", "job \"a\" {\x00}", "binary"},
		{"not UTF-8", "\n job \"\xff\" {}", "byte 7 on line 2"},
		{"deep blocks", strings.Repeat("a {\n", 40) + strings.Repeat("}\n", 40), "32 deep"},
		{"deep brackets", "a = " + strings.Repeat("[", 100_000), "32 deep"},
		{"deep templates", "a = " + strings.Repeat(`"${`, 1000), "32 deep"},
		{"many nots", "a = " + strings.Repeat("!", 500_000), "256 operators"},
		{"many nots in brackets", "a = (" + strings.Repeat("!\n", 400_000), "256 operators"},
		{"long sum", "a = 1" + strings.Repeat("+1", 400_000), "256 operators"},
		{"long chain of indexes", "a = b" + strings.Repeat("[0]", 300_000), "256 operators"},
		{"long conditional", "a = 1" + strings.Repeat("?1:1", 200_000), "256 operators"},
		{"jobs", strings.Repeat("job \"a\" {\n}\n", 10_001), "at most 10000 jobs"},
		{"ranks", "job \"a\" {\n count = 10001\n task \"a\" {\n command = \"x\"\n }\n}", "10000"},
		{"spec", "job \"a\" {\n task \"a\" {\n command = \"x\"\n args = [\"" + strings.Repeat("x", 300_000) + "\"]\n }\n}", "256 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, diags := Parse("a.hcl", []byte(c.src), Options{})
			if len(diags) != 1 || !strings.Contains(diags[0].Detail, c.want) {
				t.Errorf("got %v, want one error with %q", diags, c.want)
			}
		})
	}
}

func TestARefusalOfTheServerIsShownAtItsLine(t *testing.T) {
	const file = "job \"a\" {\n  task \"a\" {\n    command = \"true\"\n    resources {\n      gpus = 8\n    }\n  }\n}\n"
	refusal := muster.Errorf(muster.KindInfeasible, "no node has 8 GPUs")
	for field, line := range map[string]int{
		"jobs[0].groups[0].task.resources.gpus": 5, "jobs[0].groups[0].task.resources.memory": 4, "jobs[0].groups[0].task.dir": 2,
		"jobs[0].queue": 1, "groups[0].task.command": 3,
	} {
		refusal.Field = field
		diag := Diagnose("a.hcl", []byte(file), Options{}, refusal)
		if diag.Subject == nil || diag.Subject.Start.Line != line || !strings.Contains(diag.Detail, "8 GPUs") {
			t.Errorf("%s is shown at %v, want line %d", field, diag.Subject, line)
		}
	}
	if diag := Diagnose("a.hcl", []byte("{{{"), Options{}, refusal); diag.Subject != nil {
		t.Errorf("a file that can't be read has no line, got %v", diag.Subject)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{smallest, "a = \"${X:-y} %{if} $${b}\"", "job a { b = 1, c { d = <<E\nE\n} }", "job \"a\" {\ntask \"t\" {\nscript = \"${rank+1}${a[0]}${1}${!x}\"\n}\n}",
		"job \"a\" {\nlabels = { (x) = 1, \"a\" = null, b : [1] }\ntask t {\nargs = [for x in y : x]\n}\n}",
		"locals {\na = [for x in range(100) : [for y in range(100) : \"${x}${y}\"]]\nb = local.a[*][0]\n}\n", "dynamic \"dynamic\" {\nfor_each = [1]\ncontent {\n}\n}\n",
		"variable \"v\" {\ntype = object({ a = list(map(number)) })\ndefault = { a = [{ b = \"1\" }] }\n}\n", "job \"a\" {\ndynamic \"task\" {\nfor_each = {a=1}\nlabels = [task.key]\ncontent {\n" +
			"command = format(\"%s\", task.value)\n}\n}\n}\n"} {
		f.Add([]byte(seed))
	}
	for _, dir := range []string{"valid", "invalid"} {
		paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.hcl"))
		if err != nil || len(paths) == 0 {
			f.Fatal(dir, err)
		}
		for _, path := range paths {
			src, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		begin := time.Now()
		jobs, diags := Parse("fuzz.hcl", src, Options{Dir: "/w"})
		if (len(jobs) == 0) != diags.HasErrors() {
			t.Fatalf("%d jobs with %v", len(jobs), diags)
		}
		if err := WriteText(discard{}, "fuzz.hcl", src, diags, 78, false); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 10*time.Second { // of a busy machine; a second of CPU is meant
			t.Fatalf("it took %s", took)
		}
		for _, d := range diags {
			if d.Subject != nil && (d.Subject.Start.Line < 1 || d.Subject.End.Byte > len(src)+1) {
				t.Fatalf("%s points at %v of %d bytes", d.Summary, d.Subject, len(src))
			}
		}
		if _, plain := hclsyntax.ParseConfig(src, "fuzz.hcl", hcl.InitialPos); len(src) < 200 && plain.HasErrors() && !diags.HasErrors() {
			t.Fatalf("accepted what HCL refuses: %v", plain)
		}
	})
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
