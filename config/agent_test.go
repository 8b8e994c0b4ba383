package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func TestTablesFitTheirStructs(t *testing.T) {
	if err := agentTable.Check(Config{}); err != nil {
		t.Error(err)
	}
	if err := clientTable.Check(Client{}); err != nil {
		t.Error(err)
	}
}

func TestAgentFilesAreReadWithTheirDefaults(t *testing.T) {
	paths, _ := filepath.Glob("testdata/agent/*.hcl")
	if len(paths) < 3 {
		t.Fatal("test files are missing")
	}
	for _, path := range paths {
		c, diags := Load(path)
		if len(diags) > 0 {
			t.Errorf("%s: %v", path, diags)
			continue
		}
		body, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, strings.TrimSuffix(path, ".hcl")+".json", append(body, '\n'))
	}
}

func TestAnAgentsFileIsToldFromOneOfJobs(t *testing.T) {
	for source, want := range map[string]bool{
		"cluster = \"lab\"\nworker {\n}\n":  true,
		"server {\n  expect = 3\n}\n":       true,
		"job \"server\" {\n}\n":             false,
		"job \"a\" {\n  worker {\n  }\n}\n": false,
		"server {":                          false,
		"":                                  false,
	} {
		if got := IsAgentFile("some.hcl", []byte(source)); got != want {
			t.Errorf("%q: %t", source, got)
		}
	}
}

func TestMistakesInAgentFilesAreShownAtTheirLines(t *testing.T) {
	paths, _ := filepath.Glob("testdata/bad/*.hcl")
	if len(paths) < 7 {
		t.Fatal("test files are missing")
	}
	for _, path := range paths {
		c, diags := Load(path)
		if c != nil || !diags.HasErrors() {
			t.Errorf("%s was taken: %+v", path, c)
		}
		var out bytes.Buffer
		if err := WriteText(&out, diags, 100, false); err != nil {
			t.Fatal(err)
		}
		golden(t, strings.TrimSuffix(path, ".hcl")+".txt", out.Bytes())
	}
}

// The table's defaults, written out, are those of an empty file.
func TestDefaultsInTheTableAreThoseOfTheStruct(t *testing.T) {
	var write func(b *schema.Body) string
	write = func(b *schema.Body) string {
		out := ""
		for i := range b.Attrs {
			if a := &b.Attrs[i]; a.Default != "" && !a.Later {
				out += a.Name + " = " + a.Default + "\n"
			}
		}
		for i := range b.Blocks {
			out += b.Blocks[i].Name + " {\n" + write(b.Blocks[i].Body) + "}\n"
		}
		return out
	}
	const needed = "name = \"n\"\ndata_dir = \"/d\"\ncluster = \"c\"\n"
	said, short := load(t, needed+write(&agentTable)), load(t, needed+"server {}\nworker {}\n")
	if diff := cmp.Diff(short, said); diff != "" {
		t.Errorf("-left out +written\n%s", diff)
	}
}

func load(t *testing.T, files ...string) *Config {
	t.Helper()
	dir := t.TempDir()
	for i, content := range files {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".hcl"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, diags := Load(dir)
	if diags.HasErrors() {
		t.Fatalf("%v", diags)
	}
	return c
}

func TestFilesOfAFolderAreMergedInNameOrder(t *testing.T) {
	c := load(t,
		"name = \"a\"\ndata_dir = \"/d\"\ncluster = \"c\"\nworker {\n  allow_root = true\n  gpus {\n    simulate = 2\n  }\n}\n",
		"name = \"b\"\nworker {\n  gpus {\n    model = \"A100\"\n  }\n}\n",
		"server {\n  expect = 3\n}\n")
	if c.Name != "b" || !c.Worker.AllowRoot || c.Worker.GPUs.Simulate != 2 || c.Worker.GPUs.Model != "A100" || c.Server.Voters != 3 {
		t.Errorf("got %+v, worker %+v, server %+v", c, c.Worker, c.Server)
	}
}

func TestAMissingOrEmptyFolderIsSaid(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "none.hcl"), t.TempDir()} {
		if c, diags := Load(path); c != nil || len(diags) != 1 || !strings.Contains(diags[0].Detail, path) {
			t.Errorf("%s: %v, want one error that names it", path, diags)
		}
	}
}

func TestBeyondLoopbackOnlyWhenSaid(t *testing.T) {
	c := load(t, "name = \"a\"\ndata_dir = \"/d\"\ncluster = \"c\"\nbind = \"192.0.2.7\"\ninsecure = true\nserver {}\n")
	if c.Bind != "192.0.2.7" {
		t.Errorf("bind is %q", c.Bind)
	}
}
