package jobfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

const echo = "job \"a\" {\n  task \"a\" {\n    command = \"echo\"\n    args    = %s\n  }\n}\n"

// args gives what a list of args in HCL becomes.
func args(t *testing.T, declared, list string, opts Options) ([]string, string) {
	t.Helper()
	src := []byte(declared + fmt.Sprintf(echo, list))
	jobs, diags := Parse("a.hcl", src, opts)
	var text strings.Builder
	if err := WriteText(&text, "a.hcl", src, diags, 0, false); err != nil {
		t.Fatal(err)
	}
	if len(jobs) == 0 {
		return nil, text.String()
	}
	return jobs[0].Groups[0].Task.Args, text.String()
}

func TestEachFunctionGivesWhatItsPageSays(t *testing.T) {
	for _, f := range pure {
		got, said := args(t, "", fmt.Sprintf("[jsonencode(%s), jsonencode(%s)]", f.call, f.doc), Options{})
		if len(got) != 2 || got[0] != got[1] {
			t.Errorf("%s gives %q, not %s\n%s", f.call, got, f.doc, said)
		}
	}
}

func TestVariablesComeFromTheCommandLineAFileTheEnvironmentOrTheirDefault(t *testing.T) {
	const declared = `
variable "lr" {
  type    = number
  default = 0.1
}
variable "name" {
}
variable "seeds" {
  type    = list(number)
  default = []
}
variable "opt" {
  type = object({ kind = string, beta = number })
  default = {
    kind = "adam"
    beta = 0.9
  }
}
variable "debug" {
  default = false
}
`
	const list = `concat([var.name, "--lr=${var.lr}", var.opt.kind, tostring(var.debug)], [for s in var.seeds : "s${s}"])`
	env := func(name string) (string, bool) {
		value, ok := map[string]string{"MUSTER_VAR_name": "env", "MUSTER_VAR_lr": "0.5", "MUSTER_VAR_unknown": "x"}[name]
		return value, ok
	}
	file := VarFile{"v.hcl", []byte("lr = 0.25\nseeds = [1, 2]\n")}
	for _, c := range []struct {
		name string
		opts Options
		want string
	}{
		{"environment", Options{LookupEnv: env}, "env --lr=0.5 adam false"},
		{"file over environment", Options{LookupEnv: env, VarFiles: []VarFile{file}}, "env --lr=0.25 adam false s1 s2"},
		{"command line over file", Options{VarFiles: []VarFile{file}, Vars: []Var{
			{"name", "a b=${c}", "--var"}, {"lr", "1e-3", "--var"}, {"lr", "1", "--var"}, {"seeds", "[7]", "--var"},
			{"opt", `{ kind = "sgd", beta = 0 }`, "--var"}, {"debug", "true", "--var"}}}, "a b=$${c} --lr=1 sgd true s7"},
	} {
		got, said := args(t, declared, list, c.opts)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q\n%s", c.name, got, said)
		}
	}
	for _, c := range []struct {
		opts Options
		want string
	}{
		{Options{}, `"name" has no default: give it with --var name=…`},
		{Options{Vars: []Var{{"nmae", "x", "--var"}}}, `--var nmae: The file declares no variable "nmae". Did you mean "name"?`},
		{Options{LookupEnv: env, Vars: []Var{{"lr", "fast", "--var"}}}, `--var lr: "fast" is no number`},
		{Options{LookupEnv: env, Vars: []Var{{"seeds", "1,2", "--var"}}}, `--var seeds: it is list(number), and "1,2" can't be read as one`},
		{Options{LookupEnv: env, Vars: []Var{{"opt", `{ kind = "x" }`, "--var"}}}, `is no object({ beta = number, kind = string })`},
		{Options{LookupEnv: env, VarFiles: []VarFile{{"v.hcl", []byte("sedes = []\n")}}}, `Did you mean "seeds"?`},
		{Options{LookupEnv: env, VarFiles: []VarFile{{"v.hcl", []byte("seeds = \"x\"\n")}}}, `The variable's type is list(number).`},
		{Options{LookupEnv: env, VarFiles: []VarFile{{"v.hcl", []byte("seeds = [\n")}}}, `closes what begins here`},
	} {
		_, said := args(t, declared, list, c.opts)
		if !strings.Contains(said, c.want) || strings.Count(said, "Error: ") != 1 {
			t.Errorf("want one error with %q, got\n%s", c.want, said)
		}
	}
}

func TestAFileIsReadAsItStandsAndOnlyWhereItIsSubmitted(t *testing.T) {
	read := func(name string) ([]byte, error) {
		switch name {
		case "train.sh":
			return []byte("#!/bin/bash\r\necho ${HOME} $((RANK)) %{x} ${rank}\r\n"), nil
		case "image":
			return []byte{0xff, 0}, nil
		case "large":
			return make([]byte, maxText+1), nil
		}
		return nil, errors.New("open " + name + ": no such file")
	}
	jobs, diags := Parse("a.hcl", []byte("job \"a\" {\n  task \"a\" {\n    script = file(\"train.sh\")\n  }\n}\n"), Options{ReadFile: read})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	got, err := muster.Expand(jobs[0].Groups[0].Task.Script, func(string) (string, bool) { return "", false })
	if err != nil || got != "#!/bin/bash\necho ${HOME} $((RANK)) %{x} ${rank}\n" {
		t.Errorf("the shell reads %q, %v", got, err)
	}
	for _, c := range []struct {
		call string
		read func(string) ([]byte, error)
		want string
	}{
		{`file("train.sh")`, nil, "a server reads no file"},
		{`file("other.sh")`, read, "open other.sh: no such file"},
		{`file("image")`, read, "image is no text: name it in upload"},
		{`file("large")`, read, "large is longer than 256 KiB"},
	} {
		_, said := args(t, "", "["+c.call+"]", Options{ReadFile: c.read})
		if !strings.Contains(said, c.want) {
			t.Errorf("want %q, got\n%s", c.want, said)
		}
	}
}

// A file is a program of sorts: none takes more than a moment, or more memory than a large file.
func TestWhatAFileMayComputeIsBounded(t *testing.T) {
	doubling := "locals {\n  x0 = \"xxxxxxxxxxxxxxxx\"\n"
	nesting := "locals {\n  x0 = [1, 2]\n"
	for i := range 60 {
		doubling += fmt.Sprintf("  x%d = \"${local.x%d}${local.x%d}\"\n", i+1, i, i)
		nesting += fmt.Sprintf("  x%d = [local.x%d, local.x%d]\n", i+1, i, i)
	}
	long := strings.Repeat("x", 60_000)
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, "  x%d = %d\n", i, i)
	}
	for _, c := range []struct{ name, declared, list, want string }{
		{"for in for", "", "[for a in range(10000) : [for b in range(10000) : [for c in range(10000) : 1]]]", "Too much to compute"},
		{"for with errors", "", "[for a in range(10000) : [for b in range(10000) : [for c in range(10000) : 1 + \"a\"]]]", "Too much to compute"},
		{"a text that doubles", doubling + "}\n", `[local.x60]`, "Too much to compute"},
		{"a list that doubles", nesting + "}\n", `[jsonencode(local.x60)]`, "Too much to compute"},
		{"one text many times", "locals {\n  x = \"" + long + "\"\n}\n", `["` + strings.Repeat("${local.x}", 200) + `"]`, "Too much to compute"},
		{"replace", "locals {\n  x = \"" + long + "\"\n}\n", `[replace(local.x, "x", local.x)]`, "longer than 256 KiB"},
		{"join", "locals {\n  x = \"" + long + "\"\n}\n", `[join(local.x, [for i in range(1000) : "a"])]`, "longer than 256 KiB"},
		{"format", "", `[format("%999999999d", 1)]`, "at most three digits"},
		{"format by argument", "", `[format("%*d", 999999999, 1)]`, "at most three digits"},
		{"range", "", "range(1000000000)", "more than 10000 numbers"},
		{"a large number", "", `["${1e999999999}"]`, "too large"},
		{"a large number as it is", "", `[1e999999999]`, "too large"},
		{"a large number by steps", "", `[1e4000 * 1e4000]`, "too large"},
		{"many locals", "locals {\n" + many.String() + "}\n", `["x"]`, "at most 1000 local values"},
		{"many dynamic blocks", "", "[\"x\"]\n  }\n  dynamic \"constraint\" {\n    for_each = [for a in range(10000) : [for b in range(50) : b]]\n    content {\n      attribute = \"label.a\"\n" +
			"      operator = \"exists\"\n    }\n  }\n  dynamic \"spread\" {\n    for_each = [for a in range(10000) : [for b in range(80) : b]]\n    content {\n      attribute = \"label.a\"\n    }", "Too much to compute"},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			_, said := args(t, c.declared, c.list, Options{})
			if !strings.Contains(said, c.want) {
				t.Errorf("want %q, got\n%.500s", c.want, said)
			}
			if took := time.Since(begin); took > 5*time.Second { // a second of CPU on a busy machine
				t.Errorf("it took %s", took)
			}
		})
	}
}
