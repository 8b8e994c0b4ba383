//go:build chaos

package chaos

import (
	"os"
	"path/filepath"
	"strings"
)

// twinHost is where twins live, one after the other.
const twinHost = "twin"

// startTwin starts a machine whose worker has the data directory of another one's, byte for byte as a backup would have it,
// and the same name.
func (w *World) startTwin(of string) (heal func(), err error) {
	w.mu.Lock()
	busy := w.twinned
	w.twinned = true
	w.mu.Unlock()
	if busy { // its host has one already
		return func() {}, nil
	}
	host := w.twin
	original := w.Machines[of]
	dir := filepath.Join(w.Dir, twinHost+"-of-"+of+"-"+strings.TrimPrefix(newBootID(), "-")[:8])
	config, err := os.ReadFile(filepath.Join(original.Dir, "agent.hcl"))
	if err != nil {
		return nil, err
	}
	m, err := NewMachine(host, dir, w.binary, "", false, w.say)
	if err != nil {
		return nil, err
	}
	text := strings.ReplaceAll(strings.ReplaceAll(string(config), original.Dir, dir), original.IP, host.IP)
	if err := os.WriteFile(filepath.Join(dir, "agent.hcl"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	for _, part := range []string{"instance", "cluster", "servers", "journal"} {
		data, err := os.ReadFile(filepath.Join(original.Dir, "worker", part))
		if err != nil {
			continue // a worker that has not registered yet has no more
		}
		if err := os.MkdirAll(filepath.Join(dir, "worker"), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "worker", part), data, 0o600); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	w.twins = append(w.twins, m)
	w.mu.Unlock()
	return func() {
		m.Off()
		w.mu.Lock()
		w.twinned = false
		w.mu.Unlock()
	}, m.On()
}
