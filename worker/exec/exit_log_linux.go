package exec

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/musterhpc/muster"
)

// compactAt is the size, in bytes, from which a file that is mostly forgotten is written anew.
const compactAt = 256 << 10

// exitLog is the file of a living supervisor. It may be used from anywhere.
type exitLog struct {
	path string
	old  map[muster.AllocID]bool // exits of supervisors before this one that nobody has forgotten; not changed

	mu      sync.Mutex
	turn    *sync.Cond // a sync has ended
	file    *os.File
	live    map[muster.AllocID][]byte // lines of exits that are not forgotten
	size    int
	written uint64 // lines so far
	synced  uint64 // of them on the disk for certain
	syncing bool
	failed  error // a write that failed is never tried again: what it left on the disk isn't known
}

// openExitLog begins the file of the supervisor self, and removes those of dead ones in which nothing is left to learn.
func openExitLog(stateDir string, self identity) (*exitLog, error) {
	dir := exitDir(stateDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	l := &exitLog{path: filepath.Join(dir, self.String()+exitSuffix), old: map[muster.AllocID]bool{}, live: map[muster.AllocID][]byte{}}
	l.turn = sync.NewCond(&l.mu)
	for path, exits := range exitFiles(stateDir) {
		for id := range exits {
			l.old[id] = true
		}
		if id, ok := parseIdentity(strings.TrimSuffix(filepath.Base(path), exitSuffix)); len(exits) == 0 && ok && !id.alive() {
			_ = os.Remove(path) // it stays, and is read again for nothing
		}
	}
	var err error
	if l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	return l, syncDir(dir)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// write keeps s on disk: when it returns nil, a power loss doesn't lose it. Ends that come together share a sync.
func (l *exitLog) write(s *Status) error {
	line, err := encodeExit(exitLine{Exit: s})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[s.Alloc] = line
	if err := l.append(line); err != nil {
		return err
	}
	for mine := l.written; l.synced < mine && l.failed == nil; {
		if l.syncing {
			l.turn.Wait()
			continue
		}
		l.syncing = true
		upto, file := l.written, l.file
		l.mu.Unlock()
		err := file.Sync()
		l.mu.Lock()
		l.syncing, l.synced = false, upto
		if err != nil {
			l.failed = err
		}
		l.turn.Broadcast()
	}
	return l.failed
}

// forget takes exits back. Should that be lost, they are offered once more and forgotten again.
func (l *exitLog) forget(id muster.AllocID) error {
	line, err := encodeExit(exitLine{Forget: &id})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live[id] == nil {
		return nil
	}
	delete(l.live, id)
	if err := l.append(line); err != nil {
		return err
	}
	return l.compact()
}

// has says whether the exit of id is on disk.
func (l *exitLog) has(id muster.AllocID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.old[id] || l.live[id] != nil
}

func (l *exitLog) append(line []byte) error {
	if l.failed != nil {
		return l.failed
	}
	if _, err := l.file.Write(line); err != nil {
		l.failed = err
		return err
	}
	l.size += len(line)
	l.written++
	return nil
}

// compact writes the file anew when most of it is forgotten. A crash leaves the old one or the new one.
func (l *exitLog) compact() error {
	var body []byte
	if l.size < compactAt || l.syncing {
		return nil
	}
	for _, line := range l.live {
		body = append(body, line...) // ReadExits sorts
	}
	if len(body) > l.size/4 {
		return nil
	}
	if err := renameio.WriteFile(l.path, body, 0o600, renameio.WithTempDir(filepath.Dir(l.path))); err != nil {
		return err // the old one still serves
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		err = syncDir(filepath.Dir(l.path))
	}
	if err != nil {
		l.failed = err
		return err
	}
	l.file.Close()
	l.file, l.size, l.synced = file, len(body), l.written
	return nil
}

// close ends the file; one in which nothing is left to learn is removed.
func (l *exitLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file.Close()
	if len(l.live) == 0 {
		_ = os.Remove(l.path) // the next supervisor does it
	}
}
