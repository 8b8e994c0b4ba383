package jobfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhpc/muster/config"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/config/queuefile"
)

var fenced = regexp.MustCompile("(?ms)^```hcl\n(.*?)^```$")

// Files and pages for people show job files that work.
func TestExamplesAndDocumentsParse(t *testing.T) {
	root := filepath.Join("..", "..")
	parsed := 0
	check := func(name string, src []byte) {
		jobs, diags := jobfile.Parse(name, src, jobfile.Options{Dir: "/w",
			ReadFile: func(string) ([]byte, error) { return []byte("echo\n"), nil }})
		if diags.HasErrors() {
			var out strings.Builder
			_ = jobfile.WriteText(&out, name, src, diags, 100, false) // a Builder takes everything
			t.Errorf("%s", out.String())
		}
		parsed += len(jobs)
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		inside, _ := filepath.Rel(root, path)
		isExample := strings.HasPrefix(inside, "examples"+string(filepath.Separator)) && strings.HasSuffix(path, ".hcl")
		isPage := inside == "README.md" || strings.HasPrefix(inside, "docs"+string(filepath.Separator)) && strings.HasSuffix(path, ".md")
		if entry.IsDir() || !isExample && !isPage {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch {
		case isExample && queuefile.IsQueueFile(inside, src):
			if _, diags := queuefile.Parse(inside, src); diags.HasErrors() {
				t.Errorf("%s: %v", inside, diags)
			}
			return nil
		case isExample:
			check(inside, src)
			return nil
		}
		for _, block := range fenced.FindAllSubmatch(src, -1) {
			switch {
			case queuefile.IsQueueFile(inside, block[1]):
				if _, diags := queuefile.Parse(inside, block[1]); diags.HasErrors() {
					t.Errorf("%v in\n%s", diags, block[1])
				}
			case config.IsAgentFile(inside, block[1]):
				path := filepath.Join(t.TempDir(), "agent.hcl")
				if err := os.WriteFile(path, block[1], 0o600); err != nil {
					return err
				}
				if _, diags := config.Load(path); diags.HasErrors() {
					t.Errorf("%s: %v in\n%s", inside, diags, block[1])
				}
			default:
				check(inside, block[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if parsed < 4 {
		t.Errorf("found %d jobs in examples and pages, want at least 4", parsed)
	}
}
