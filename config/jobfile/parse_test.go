package jobfile_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/wire"
)

var update = flag.Bool("update", false, "write the golden files and pages")

// files lists the .hcl files of a folder of testdata.
func files(t *testing.T, dir string, atLeast int) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.hcl"))
	if err != nil || len(paths) < atLeast {
		t.Fatalf("testdata/%s has %d files, want at least %d (%v)", dir, len(paths), atLeast, err)
	}
	return paths
}

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

func parse(t *testing.T, path string) (source []byte, text string, specs []*muster.JobSpec, errors int) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(path)
	jobs, diags := jobfile.Parse(name, source, jobfile.Options{Dir: "/home/ann/work",
		ReadFile: func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(filepath.Dir(path), name)) }})
	var out bytes.Buffer
	if err := jobfile.WriteText(&out, name, source, diags, 100, false); err != nil {
		t.Fatal(err)
	}
	if diags.HasErrors() && jobs != nil {
		t.Errorf("%s: specs in spite of errors", path)
	}
	return source, out.String(), jobs, len(diags)
}

// The first line of an invalid file says how many mistakes it holds, as in "# 2 mistakes"; one when it says nothing.
func mistakes(source []byte) int {
	n := 1
	_, _ = fmt.Sscanf(string(source), "# %d mistakes", &n) // without the comment it stays 1
	return n
}

func TestEachMistakeIsSaidOnceWithWhatToWriteInstead(t *testing.T) {
	for _, path := range files(t, "invalid", 30) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".hcl"), func(t *testing.T) {
			source, text, _, errors := parse(t, path)
			if want := mistakes(source); errors != want {
				t.Errorf("%d errors, want %d:\n%s", errors, want, text)
			}
			golden(t, strings.TrimSuffix(path, ".hcl")+".txt", []byte(text))
		})
	}
}

func TestValidFilesBecomeSpecsWithEveryDefault(t *testing.T) {
	for _, path := range files(t, "valid", 10) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".hcl"), func(t *testing.T) {
			_, text, specs, errors := parse(t, path)
			if errors != 0 {
				t.Fatalf("errors:\n%s", text)
			}
			var list []*wire.JobSpec
			for _, spec := range specs {
				list = append(list, wire.JobSpecOf(spec))
			}
			out, err := wire.SpecsJSON(list...)
			if err != nil {
				t.Fatal(err)
			}
			taken, err := wire.ParseSubmitJSON(out)
			if err != nil {
				t.Fatalf("POST /v1/jobs takes it otherwise: %v", err)
			}
			if diff := cmp.Diff(specs, taken.Jobs, cmpopts.EquateEmpty(), cmpopts.SortSlices(byName)); diff != "" {
				t.Errorf("POST /v1/jobs takes it otherwise: %s", diff)
			}
			golden(t, strings.TrimSuffix(path, ".hcl")+".json", append(out, '\n'))
		})
	}
}

func byName(a, b muster.EnvVar) bool { return a.Name < b.Name }
