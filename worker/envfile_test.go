package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileOfVariablesIsReadAsAShellWould(t *testing.T) {
	vars, err := parseEnvFile("# keys\n\nA=1\nexport B = two words \nC='$x \\n'\nD=\"a\\n\\\"b\\\" \\\\n\"\nE=\nF=a=b\r\n")
	want := `[{A 1} {B two words} {C $x \n} {D a` + "\n" + `"b" \n} {E } {F a=b}]`
	if got := fmt.Sprint(vars); err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

func TestAnErrorInAFileOfVariablesDoesNotShowIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secrets")
	for text, want := range map[string]string{
		"A=1\nhunter2\n": "line 2 is not NAME=VALUE",
		"9=hunter2":      "line 1 is not NAME=VALUE",
		"A=\"hunter2":    "line 1: the quote has no end on its line",
		"A=hunter2\x00":  "line 1: the value holds a NUL byte",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readEnvFiles([]string{path})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := readEnvFiles([]string{filepath.Join(dir, "none")}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if _, err := readEnvFiles([]string{dir}); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("%v", err)
	}
}
