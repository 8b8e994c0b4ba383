package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readme gives the code blocks of README.md in a language.
func readme(t *testing.T, language string) []string {
	t.Helper()
	body, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(body, -1) {
		blocks = append(blocks, string(match[1]))
	}
	if len(blocks) == 0 {
		t.Fatalf("README.md has no %s block", language)
	}
	return blocks
}

// The first command of README.md does what the text above it says: a gang of two ranks, the leader killed on the way, each line
// of each rank once.
func TestTheFirstCommandOfTheReadme(t *testing.T) {
	t.Parallel()
	arguments, ok := strings.CutPrefix(strings.TrimSpace(readme(t, "sh")[0]), "go run -tags hashicorpmetrics ./cmd/muster ")
	if !ok {
		t.Fatalf("README.md begins with %q", readme(t, "sh")[0])
	}
	command := exec.Command("muster", strings.Fields(arguments)...)
	command.Dir = "../.."
	command.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=", "MUSTER_ADDR=", "MUSTER_CONTEXT=")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	for _, want := range []string{`3 servers, 4 workers with 8 simulated H100 each, ready after`, `kill -9 of s\d, the leader`, `s\d leads, \d+ ms after the kill`} {
		if !regexp.MustCompile(want).MatchString(stderr.String()) {
			t.Errorf("stderr does not say %q:\n%s", want, stderr.String())
		}
	}
	for rank := range 2 {
		for second := 1; second <= 6; second++ {
			line := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d@w\d\] second %d$`, rank, second))
			if n := len(line.FindAllString(stdout.String(), -1)); n != 1 {
				t.Errorf("rank %d said second %d %d times:\n%s", rank, second, n, stdout.String())
			}
		}
	}
}

// The second is the one that CI runs.
func TestTheTestCommandOfTheReadme(t *testing.T) {
	second := strings.TrimSpace(readme(t, "sh")[1])
	ci, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.NewReplacer(`"$tags"`, "hashicorpmetrics").Replace(string(ci)), "\n"+second+"\n") {
		t.Errorf(".ci/run does not run README.md's %q", second)
	}
}

func TestTheVerbsOfTheReadmeExist(t *testing.T) {
	t.Parallel()
	for _, line := range regexp.MustCompile(`[\n;]`).Split(readme(t, "sh")[2], -1) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "muster" {
			continue
		}
		verb := []string{words[1]}
		if words[1] == "node" || words[1] == "server" || words[1] == "dev" && len(words) > 2 && words[2] != "#" {
			verb = append(verb, words[2])
		}
		output, err := exec.Command("muster", append(verb, "--help")...).CombinedOutput()
		if err != nil || !strings.Contains(string(output), "muster "+strings.Join(verb, " ")) {
			t.Errorf("muster %s --help: %v\n%s", strings.Join(verb, " "), err, output)
		}
	}
}

func TestTheJobFilesOfTheReadmeAreValid(t *testing.T) {
	for _, block := range readme(t, "hcl") {
		path := filepath.Join(t.TempDir(), "readme.hcl")
		if err := os.WriteFile(path, []byte(block), 0o644); err != nil {
			t.Fatal(err)
		}
		if output, err := exec.Command("muster", "validate", path).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
	}
}
