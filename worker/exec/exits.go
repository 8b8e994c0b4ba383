package exec

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/musterhpc/muster"
)

// An exit is written to disk before it is told to anyone: whoever comes after the supervisor, or after the agent, learns it.
// A file each, named by the allocation number; the number is never used again, so the file also refuses a second start.

func exitDir(stateDir string) string { return filepath.Join(stateDir, "exits") }

func exitPath(stateDir string, id muster.AllocID) string {
	return filepath.Join(exitDir(stateDir), id.String()+".json")
}

// writeExit keeps s on disk: when it returns nil, a power loss doesn't lose it.
func writeExit(stateDir string, s *Status) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(exitPath(stateDir, s.Alloc), body, 0o600, renameio.WithTempDir(exitDir(stateDir))); err != nil {
		return err
	}
	dir, err := os.Open(exitDir(stateDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// ReadExits gives the exits in stateDir that nobody has forgotten yet, in order of allocation number. A supervisor that has
// died can't be asked for them any more. Files that aren't readable are left out: the agent then finds its intent without a
// process.
func ReadExits(stateDir string) []Status {
	entries, err := os.ReadDir(exitDir(stateDir))
	if err != nil {
		return nil
	}
	var out []Status
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), ".json")
		if !ok {
			continue
		}
		id, err := muster.ParseAllocID(name)
		if err != nil {
			continue
		}
		body, err := os.ReadFile(exitPath(stateDir, id))
		if err != nil {
			continue
		}
		var s Status
		if json.Unmarshal(body, &s) == nil && s.Alloc == id && s.Phase == muster.AllocEnded {
			out = append(out, s)
		}
	}
	sortStatuses(out)
	return out
}

// ForgetExits removes exits whose supervisor is no longer there to be asked to.
func ForgetExits(stateDir string, ids []muster.AllocID) error {
	var errs []error
	for _, id := range ids {
		if err := os.Remove(exitPath(stateDir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
