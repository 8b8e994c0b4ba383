package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write what is generated")

// docs/commands.md is what --help says, of all verbs.
func TestTheCommandReferenceIsFresh(t *testing.T) {
	var b strings.Builder
	b.WriteString("# The command line\n\nMade from the program's own help by `go test ./cmd/muster -run CommandReference -update`; a test keeps it fresh.\n")
	writeHelp(&b, new(app).command(), 2)
	path := "../../docs/commands.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(have), b.String()); d != "" {
		t.Errorf("docs/commands.md (-is +should be; -update writes it):\n%s", d)
	}
}

func writeHelp(b *strings.Builder, cmd *cobra.Command, level int) {
	fmt.Fprintf(b, "\n%s %s\n\n```\n%s```\n", strings.Repeat("#", level), cmd.CommandPath(), helpText(cmd))
	for _, verb := range cmd.Commands() {
		if verb.IsAvailableCommand() && verb.Name() != "help" {
			writeHelp(b, verb, min(level+1, 4))
		}
	}
}

// The quickstart's commands do what it says, one after the other, on a cluster of their own: it has a job that takes all GPUs.
func TestTheQuickstart(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	environment := append(os.Environ(), startDev(t)...)
	dir := t.TempDir()
	var all bytes.Buffer
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(body, -1) {
		shell := exec.Command("bash", "-euo", "pipefail", "-c", string(block[1]))
		shell.Env, shell.Dir = environment, dir
		output, err := shell.CombinedOutput()
		all.Write(output)
		if err != nil {
			t.Fatalf("%v:\n%s\n%s", err, block[1], output)
		}
	}
	for _, want := range []string{
		`(?m)^hello from rank 0 on w\d with GPU-`, `(?m)^\[1@w\d\] rank 1 of 2$`, `needs 1 node with 8 free GPUs.*; now none`,
		`(?m)^1\n2\n3\n4\n5\n6\n7\n8$`,
	} {
		if !regexp.MustCompile(want).Match(all.Bytes()) {
			t.Errorf("nothing says %q in:\n%s", want, all.String())
		}
	}
}

// A page of docs names only files that are there.
func TestTheDocsLinkToWhatIsThere(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md") {
		body, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllSubmatch(body, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), string(link[1]))); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
