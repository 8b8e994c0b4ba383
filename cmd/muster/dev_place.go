package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config"
)

// What can be wrong with where a muster dev is to live is told before anything is started.

// devDirPrefix begins the names of the directories that a muster dev makes for itself.
const devDirPrefix = "muster-dev-"

// longestSocket is, below a dev cluster's directory, the longest path of a socket; socketPath what systems allow for a whole
// one (a supervisor refuses more).
const (
	longestSocket = "/w9999/run/supervisor.sock"
	socketPath    = 100
)

// devPlace is the directory of a muster dev, which no other may use meanwhile.
type devPlace struct {
	dir  string
	own  bool // made by this muster dev, and removed with it
	lock *os.File
}

// takePlace makes or takes over the directory of a dev cluster with so many servers. dir "" is a temporary one.
func takePlace(dir string, servers int, notes io.Writer) (*devPlace, error) {
	p := &devPlace{dir: dir, own: dir == ""}
	var err error
	switch {
	case p.own:
		if p.dir, err = temporaryPlace(notes); err != nil {
			return nil, err
		}
	default:
		if p.dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		if len(p.dir)+len(longestSocket) > socketPath {
			return nil, muster.Errorf(muster.KindUsage, "--data-dir %s is too long: sockets live below it, and their paths may have %d bytes", p.dir, socketPath).
				WithHint("Say one of at most %d bytes", socketPath-len(longestSocket))
		}
		if err := leftOver(p.dir, servers); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(p.dir, 0o700); err != nil {
			return nil, fmt.Errorf("--data-dir: %w", err)
		}
	}
	if p.lock, err = os.OpenFile(filepath.Join(p.dir, "dev.lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("%s: %w", p.dir, err)
	}
	if err := syscall.Flock(int(p.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		p.lock.Close()
		return nil, muster.Errorf(muster.KindConflict, "another muster dev uses %s", p.dir).WithHint("End that one first, or say another --data-dir")
	}
	return p, nil
}

func (p *devPlace) leave() {
	p.lock.Close()
	if p.own {
		_ = os.RemoveAll(p.dir) // what stays is small, and temporary
	}
}

// temporaryPlace makes a directory in TMPDIR, or in /tmp where that is too long for sockets.
func temporaryPlace(notes io.Writer) (string, error) {
	dir, err := os.MkdirTemp("", devDirPrefix)
	if err != nil {
		return "", fmt.Errorf("no temporary directory can be made: %w", err)
	}
	if len(dir)+len(longestSocket) <= socketPath {
		return dir, nil
	}
	_ = os.Remove(dir)
	short, err := os.MkdirTemp("/tmp", devDirPrefix)
	if err != nil {
		return "", muster.Errorf(muster.KindUsage, "the temporary directory %s is too long for sockets, whose paths may have %d bytes, and /tmp is not to be had: %v",
			os.TempDir(), socketPath, err).WithHint("Set TMPDIR to a shorter one, or say --data-dir")
	}
	fmt.Fprintf(notes, "muster dev: TMPDIR is too long for sockets (%s): using %s\n", os.TempDir(), short)
	return short, nil
}

// leftOver refuses a directory of something else, or of a cluster with another number of servers: those would wait for each
// other in vain.
func leftOver(dir string, servers int) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--data-dir: %w", err)
	}
	had, others := 0, 0
	for _, e := range entries {
		number, isServer := strings.CutPrefix(e.Name(), "s")
		_, notNumber := strconv.Atoi(number)
		_, notAgent := os.Stat(filepath.Join(dir, e.Name(), "agent.hcl"))
		switch {
		case isServer && notNumber == nil && notAgent == nil:
			had++
		case notAgent != nil && !strings.HasPrefix(e.Name(), "dev.") && e.Name() != "checkpoints":
			others++
		}
	}
	switch {
	case had > 0 && had != servers:
		return muster.Errorf(muster.KindConflict, "%s holds a cluster of %s, not %d", dir, count(had, "server"), servers).
			WithHint("Say --servers %d, or another --data-dir", had)
	case had == 0 && others > 0:
		return muster.Errorf(muster.KindConflict, "%s is not empty, and holds no dev cluster", dir).WithHint("Say an empty --data-dir, or one that is not there yet")
	}
	return nil
}

// devPortFree refuses an address of --http that another program has.
func devPortFree(address string) error {
	port, err := loopbackPort(address)
	if err != nil || address == "" {
		return nil // it was refused before
	}
	l, err := net.Listen("tcp", loopback(port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return muster.Errorf(muster.KindConflict, "another program has %s, the address of --http", loopback(port)).WithHint("Say another, or leave --http out")
	}
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	return l.Close()
}

// contextWritable refuses a home in which the context can't be written, before a cluster is started that nobody would find.
func contextWritable() error {
	path, err := config.ClientPath()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(filepath.Dir(path), ".dev-"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err == nil {
		return nil
	}
	return muster.Errorf(muster.KindError, "the context \"dev\", by which other shells find the cluster, can't be written: %v", err).
		WithHint("Set XDG_CONFIG_HOME to a folder that can be written")
}

// answers says whether the muster dev of the record lives. Its pid says little: it may be another's by now.
func (r *devRecord) answers(ctx context.Context) bool {
	var agents []devAgentStatus
	return r.call(ctx, "GET", "/status", nil, &agents) == nil
}

// clear takes away what a muster dev left that was killed: its record and the directory that it had made for itself.
func (r *devRecord) clear(notes io.Writer) {
	fmt.Fprintf(notes, "muster dev: the one before, with pid %d, did not end in order: clearing up\n", r.Pid)
	if r.Temporary && strings.HasPrefix(filepath.Base(r.Dir), devDirPrefix) {
		killSupervisors(r.Dir)
		_ = os.RemoveAll(r.Dir)
	}
	r.remove()
}

// goneDev says that a client was sent to a muster dev that was killed: its context stays behind, and nobody answers there.
func goneDev(found *config.Found) error {
	record, err := readDevRecord()
	if err != nil || !strings.Contains(found.Source, "the context dev") {
		return nil
	}
	if control, err := net.DialTimeout("unix", record.Control, time.Second); err == nil {
		return control.Close()
	}
	for _, address := range found.Addresses {
		if server, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return server.Close()
		}
	}
	return muster.Errorf(muster.KindUnavailable, "the muster dev of the context \"dev\" was killed (it had pid %d): nothing answers there", record.Pid).
		WithHint("Start it again: muster dev")
}
