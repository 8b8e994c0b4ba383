// Package test holds what concerns the whole: the rules of the house, the harness that starts real clusters, and the stories
// told with it.
package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/musterhpc/muster"

// A rule says what a package may import directly: packages of ours, and what else beside the standard library.
type rule struct {
	ours    []string
	outside []string
	reason  string
}

// The import law. A folder that no rule names, its parents included, may not exist.
var law = map[string]rule{
	".":            {nil, nil, "the domain is values; whoever holds them decides about the world"},
	"fsm/state":    {[]string{"."}, []string{"github.com/google/btree"}, "replicas must agree: nothing of the world may reach Apply"},
	"scheduler":    {[]string{".", "fsm/state"}, nil, "a decision is a function of a snapshot"},
	"wire":         {[]string{".", "fsm/state"}, []string{"google.golang.org/grpc", "google.golang.org/protobuf"}, "the border knows both sides and nothing behind them"},
	"fsm":          {[]string{".", "fsm/state", "wire"}, []string{"github.com/hashicorp/raft", "google.golang.org/protobuf"}, "the adapter is thin"},
	"cluster/duty": {[]string{".", "fsm/state", "wire"}, nil, "a leader's decision is a function of what it was told"},
	"cluster": {[]string{".", "cluster/duty", "fsm", "fsm/state", "scheduler", "wire"}, []string{"github.com/hashicorp/", "go.etcd.io/bbolt",
		"github.com/google/renameio", "github.com/prometheus/", "golang.org/x/", "google.golang.org/protobuf"}, "a server's life needs no RPC: it is handed what it calls"},
	"worker/step": {[]string{".", "wire", "worker/exec"}, nil, "an agent's decision is a function of what it was told"},
	"worker": {[]string{".", "wire", "worker/exec", "worker/gpu", "worker/step"}, []string{"google.golang.org/", "github.com/hashicorp/go-hclog",
		"github.com/google/renameio", "github.com/prometheus/", "golang.org/x/"}, "a worker knows what it was told, not the state"},
	"worker/exec": {[]string{".", "wire"}, []string{"github.com/hashicorp/go-hclog", "github.com/google/renameio", "golang.org/x/",
		"google.golang.org/protobuf"}, "a supervisor outlives everything else: it must need little"},
	"worker/gpu":       {[]string{".", "wire"}, []string{"github.com/NVIDIA/go-nvml", "golang.org/x/"}, "NVML lives here and nowhere else"},
	"rpc":              {[]string{".", "wire"}, []string{"google.golang.org/", "github.com/hashicorp/go-hclog", "github.com/prometheus/", "golang.org/x/"}, "transport transports"},
	"config":           {[]string{".", "wire", "config/schema"}, hclLibraries, "a file is read without a cluster"},
	"config/schema":    {[]string{"."}, hclLibraries, "a file is read without a cluster"},
	"config/jobfile":   {[]string{".", "wire", "config/schema"}, hclLibraries, "a file is read without a cluster"},
	"config/queuefile": {[]string{".", "wire", "config/schema"}, hclLibraries, "a file is read without a cluster"},

	"scheduler/sim": {[]string{".", "fsm/state", "scheduler"}, nil, "a simulation is another shell round the same state and scheduler"},
}

var hclLibraries = []string{"github.com/hashicorp/", "github.com/zclconf/go-cty", "github.com/google/renameio", "golang.org/x/", "github.com/agext/levenshtein"}

// Only these may import what they like: nothing imports them.
var free = []string{"cmd", "test", "tools", "examples"}

func TestPackagesImportOnlyWhatTheLawAllows(t *testing.T) {
	for dir, files := range sources(t) {
		if slices.ContainsFunc(free, func(f string) bool { return dir == f || strings.HasPrefix(dir, f+"/") }) {
			continue
		}
		r, known := law[dir]
		if !known {
			t.Errorf("package %s: the layout has no such room; give it a rule, with a reason, in the import law", dir)
			continue
		}
		for path, file := range files {
			for _, imported := range file.Imports {
				name, _ := strconv.Unquote(imported.Path.Value)
				if !allowed(r, name) {
					t.Errorf("%s imports %s, which %s may not: %s", path, name, dir, r.reason)
				}
			}
		}
	}
}

func allowed(r rule, name string) bool {
	if name == module {
		return slices.Contains(r.ours, ".")
	}
	if ours, ok := strings.CutPrefix(name, module+"/"); ok {
		return slices.Contains(r.ours, ours)
	}
	if first, _, _ := strings.Cut(name, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	return slices.ContainsFunc(r.outside, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func TestNobodyImportsTheCommand(t *testing.T) {
	for _, files := range sources(t) {
		for path, file := range files {
			for _, imported := range file.Imports {
				if name, _ := strconv.Unquote(imported.Path.Value); strings.HasPrefix(name, module+"/cmd") {
					t.Errorf("%s imports %s: cmd wires, nothing imports it", path, name)
				}
			}
		}
	}
}

func TestEachPackageSaysOnceWhatItIs(t *testing.T) {
	for dir, files := range sources(t) {
		var said []string
		for path, file := range files {
			if file.Doc != nil && !strings.HasSuffix(path, ".pb.go") && !isDirective(file.Doc) {
				said = append(said, path)
			}
		}
		slices.Sort(said)
		if len(said) != 1 {
			t.Errorf("package %s has %d package comments, want one: %s", dir, len(said), strings.Join(said, ", "))
		}
	}
}

func isDirective(doc *ast.CommentGroup) bool { return strings.TrimSpace(doc.Text()) == "" }

func TestNoRoomIsNamedAfterNothing(t *testing.T) {
	for dir, files := range sources(t) {
		for _, path := range append(slices.Collect(maps.Keys(files)), dir) {
			base := strings.TrimSuffix(filepath.Base(path), ".go")
			if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "types", "misc"}, base) {
				t.Errorf("%s: name it after what it holds", path)
			}
		}
	}
}

// What would make two replicas, or two passes over one snapshot, disagree.
var impure = map[string]string{
	"time.Now": "a clock", "time.Since": "a clock", "time.Until": "a clock", "time.After": "a clock", "time.Sleep": "a clock",
	"time.NewTimer": "a clock", "time.NewTicker": "a clock", "time.Tick": "a clock", "time.AfterFunc": "a clock",
}

var impureImports = []string{"os", "net", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "hash/maphash", "syscall"}

func TestReplicatedStateAndSchedulerArePure(t *testing.T) {
	all := sources(t)
	for _, dir := range []string{"fsm/state", "scheduler"} {
		for path, file := range all[dir] {
			for _, imported := range file.Imports {
				if name, _ := strconv.Unquote(imported.Path.Value); slices.Contains(impureImports, name) {
					t.Errorf("%s imports %s: the pure packages know no disk, net, log, chance or clock", path, name)
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if pkg, ok := n.X.(*ast.Ident); ok && impure[pkg.Name+"."+n.Sel.Name] != "" {
						t.Errorf("%s calls %s.%s: time comes in as a value", path, pkg.Name, n.Sel.Name)
					}
				case *ast.Ident:
					if dir == "fsm/state" && (n.Name == "float64" || n.Name == "float32") {
						t.Errorf("%s uses %s: processors round differently, digests would differ", path, n.Name)
					}
				case *ast.BasicLit:
					if dir == "fsm/state" && n.Kind == token.FLOAT {
						t.Errorf("%s has the float literal %s: processors round differently, digests would differ", path, n.Value)
					}
				}
				return true
			})
		}
	}
}

// sources parses all Go files that are not tests, by folder relative to the root.
func sources(t *testing.T) map[string]map[string]*ast.File {
	t.Helper()
	root := ".."
	out := map[string]map[string]*ast.File{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		isTest := strings.HasSuffix(path, "_test.go") && filepath.Dir(path) != filepath.Join(root, "test")
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || isTest {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if out[dir] == nil {
			out[dir] = map[string]*ast.File{}
		}
		out[dir][path] = file
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out["."]) == 0 {
		wd, _ := os.Getwd()
		t.Fatalf("no sources found above %s", wd)
	}
	return out
}
