package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// dataDir is a server's directory, locked by this process until close.
type dataDir struct {
	path string
	id   string // of the server; a new one for each empty directory, since a wiped server could vote twice under its old one
	lock *os.File
}

// identity is the content of server.json.
type identity struct {
	Server  string `json:"server"`
	Cluster string `json:"cluster"`
}

// openDataDir makes or opens the directory and takes its lock. It refuses one of another cluster, or of another process.
func openDataDir(path, cluster string) (_ *dataDir, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by another muster server; stop that one, or give this one a directory of its own", path)
		}
		return nil, fmt.Errorf("data directory %s: lock: %w", path, err)
	}
	file := filepath.Join(path, "server.json")
	content, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return newIdentity(path, cluster, file, lock)
	case err != nil:
		return nil, fmt.Errorf("data directory: %w", err)
	}
	var is identity
	if err := json.Unmarshal(content, &is); err != nil || is.Server == "" {
		return nil, fmt.Errorf("%s is damaged (%v); move %s away to begin as a new server", file, err, path)
	}
	if is.Cluster != cluster {
		return nil, fmt.Errorf("data directory %s belongs to cluster %q, not to %q; give this server a directory of its own", path, is.Cluster, cluster)
	}
	return &dataDir{path: path, id: is.Server, lock: lock}, nil
}

func newIdentity(path, cluster, file string, lock *os.File) (*dataDir, error) {
	if _, err := os.Stat(filepath.Join(path, "raft.db")); err == nil {
		return nil, fmt.Errorf("data directory %s has a raft log but no server.json; put that back, or move %s away to begin as a new server", path, path)
	}
	var random [8]byte
	rand.Read(random[:])
	is := identity{Server: hex.EncodeToString(random[:]), Cluster: cluster}
	content, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	if err := renameio.WriteFile(file, append(content, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return &dataDir{path: path, id: is.Server, lock: lock}, nil
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

func (d *dataDir) close() { d.lock.Close() }
