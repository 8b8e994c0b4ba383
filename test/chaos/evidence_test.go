//go:build chaos

package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/test/chaos/check"
)

func TestEvidenceIsReadAgainOrSaysWhatItLacks(t *testing.T) {
	dir := t.TempDir()
	wants := func(text string) {
		t.Helper()
		if _, err := readPast(dir); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want an error that says %q", err, text)
		}
	}
	wants("EVIDENCE is the folder that a failed run names")
	if err := makeFolders(dir); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "evidence", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("calls.jsonl", "")
	wants("did not come to its end")
	var text strings.Builder
	h := check.History{Run: check.Run{Seed: 7}, Calls: []check.Call{{Client: "c1", Op: check.OpGet, Outcome: check.OK}}}
	if err := h.Write(&text); err != nil {
		t.Fatal(err)
	}
	write("history.jsonl", text.String())
	if again, err := readPast(dir); err != nil || again.Run.Seed != 7 || len(again.Calls) != 1 {
		t.Errorf("read again: %+v, %v", again, err)
	}
}
