package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/musterhpc/muster"
)

// An exit is written to disk before it is told to anyone: whoever comes after the supervisor, or after the agent, learns it.
// Each supervisor appends to a file of its own, named by its identity: a line for each exit, and one for each that was
// forgotten. A file for each exit would cost a creation, two syncs and a removal, which is most of what a short task costs.

// exitLine is one line: an exit, or the number of one that is forgotten.
type exitLine struct {
	Exit   *Status         `json:"exit,omitempty"`
	Forget *muster.AllocID `json:"forget,omitempty"`
}

func exitDir(stateDir string) string { return filepath.Join(stateDir, "exits") }

const exitSuffix = ".exits"

func encodeExit(line exitLine) ([]byte, error) {
	body, err := json.Marshal(line)
	return append(body, '\n'), err
}

// exitFiles reads all files of exits: by path, what is not forgotten of each. A line that isn't whole was never told to anyone.
func exitFiles(stateDir string) map[string]map[muster.AllocID]Status {
	paths, _ := filepath.Glob(filepath.Join(exitDir(stateDir), "*"+exitSuffix)) // the pattern is well-formed
	out := map[string]map[muster.AllocID]Status{}
	for _, path := range paths {
		body, err := os.ReadFile(path)
		if err != nil {
			continue // the agent then finds its intents without a process
		}
		exits := map[muster.AllocID]Status{}
		for text := range bytes.Lines(body) {
			var line exitLine
			if json.Unmarshal(text, &line) != nil {
				continue
			}
			switch {
			case line.Forget != nil:
				delete(exits, *line.Forget)
			case line.Exit != nil && line.Exit.Phase == muster.AllocEnded:
				exits[line.Exit.Alloc] = *line.Exit
			}
		}
		out[path] = exits
	}
	return out
}

// ReadExits gives the exits in stateDir that nobody has forgotten yet, in order of allocation number. A supervisor that has
// died can't be asked for them any more.
func ReadExits(stateDir string) []Status {
	var out []Status
	for _, exits := range exitFiles(stateDir) {
		for _, s := range exits {
			out = append(out, s)
		}
	}
	sortStatuses(out)
	return out
}

// ForgetExits forgets exits whose supervisor is no longer there to be asked to. A line is appended, so that it does no harm to
// a file whose supervisor lives all the same.
func ForgetExits(stateDir string, ids []muster.AllocID) error {
	var errs []error
	for path, exits := range exitFiles(stateDir) {
		var lines []byte
		for _, id := range ids {
			if _, ok := exits[id]; !ok {
				continue
			}
			line, err := encodeExit(exitLine{Forget: &id})
			if err != nil {
				errs = append(errs, err)
			}
			lines = append(lines, line...)
		}
		if len(lines) == 0 {
			continue
		}
		lines = append([]byte{'\n'}, lines...) // whoever died in the middle of a line left no end
		if err := appendTo(path, lines); err != nil {
			errs = append(errs, fmt.Errorf("exits: %w", err))
		}
	}
	return errors.Join(errs...)
}

func appendTo(path string, lines []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(lines)
	return errors.Join(err, file.Close())
}
