package worker

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/musterhpc/muster"
)

// identity is by what a cluster tells machines, their boots and data directories apart.
type identity struct {
	Hardware string
	Boot     string
	Instance string
}

// store is the data directory, locked.
type store struct {
	dir  string
	lock *os.File
}

// openStore makes and locks the data directory: two agents over one would each start what the other runs.
func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = muster.Errorf(muster.KindConflict, "another worker runs in %s", dir).WithHint("Stop it, or choose another data directory")
		}
		return nil, errors.Join(err, f.Close())
	}
	return &store{dir: dir, lock: f}, nil
}

// close gives the lock back.
func (s *store) close() error { return s.lock.Close() }

func (s *store) path(name string) string { return filepath.Join(s.dir, name) }

// read gives a small file's content without the blanks around it; "" when there is none.
func (s *store) read(name string) (string, error) {
	data, err := os.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

func (s *store) write(name, content string) error {
	return replaceFile(s.path(name), []byte(content+"\n"))
}

// instance is the data directory's own id: made once, random.
func (s *store) instance() (string, error) {
	id, err := s.read("instance")
	if err != nil || id != "" {
		return id, err
	}
	id = rand.Text()
	return id, s.write("instance", id)
}

// join binds the worker to a cluster for ever, or refuses another one.
func (s *store) join(cluster string) error {
	known, err := s.read("cluster")
	if err != nil {
		return err
	}
	switch known {
	case cluster:
		return nil
	case "":
		return s.write("cluster", cluster)
	}
	return muster.Errorf(muster.KindConflict, "this worker belongs to cluster %s, and the server to %s", known, cluster).
		WithHint("To move the machine for good, stop the worker and move %s away", s.dir)
}

// life numbers this agent among all that ran over the data directory: later ones have higher numbers, even when the directory
// was put back from a copy of long ago, as far as the machine's clock tells.
func (s *store) life(now time.Time) (uint64, error) {
	text, err := s.read("life")
	if err != nil {
		return 0, err
	}
	before, _ := strconv.ParseUint(text, 10, 64) // none, or not ours: the clock tells
	life := max(before+1, uint64(max(now.Unix(), 0)))
	return life, s.write("life", strconv.FormatUint(life, 10))
}

// servers are the addresses that were learnt.
func (s *store) servers() ([]string, error) {
	text, err := s.read("servers")
	return strings.Fields(text), err
}

func (s *store) setServers(list []string) error { return s.write("servers", strings.Join(list, "\n")) }

// identify reads who this machine, boot and data directory are. Where the machine is simulated the data directory's
// place and the node's name stand for it, so that many workers on one machine are different nodes.
func identify(s *store, name string, simulated bool) (identity, error) {
	var id identity
	var err error
	if id.Instance, err = s.instance(); err != nil {
		return id, fmt.Errorf("data directory: %w", err)
	}
	if id.Boot, err = bootID(); err != nil {
		return id, err
	}
	if simulated {
		sum := sha256.Sum256([]byte(s.dir + "\x00" + name))
		id.Hardware = fmt.Sprintf("simulated-%x", sum[:8])
		return id, nil
	}
	id.Hardware, err = hardwareID()
	return id, err
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("this boot's id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// hardwareID is the mainboard's uuid, which survives a new system disk; only root may read it. Else the machine id. Boards
// that were never given one have the same placeholder, so it has to look random.
func hardwareID() (string, error) {
	if data, err := os.ReadFile("/sys/class/dmi/id/product_uuid"); err == nil {
		if id := strings.ToLower(strings.TrimSpace(string(data))); plausibleUUID(id) {
			return "dmi-" + id, nil
		}
	}
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if data, err := os.ReadFile(path); err == nil {
			if id := strings.TrimSpace(string(data)); len(id) == 32 {
				return "machine-" + id, nil
			}
		}
	}
	return "", muster.Errorf(muster.KindError, "this machine has no identity: neither a DMI product_uuid that root can read nor /etc/machine-id").
		WithHint("Run systemd-machine-id-setup, or dbus-uuidgen --ensure=/etc/machine-id")
}

// plausibleUUID refuses placeholders such as 03000200-0400-0500-0006-000700080009 and all zeros: few different digits.
func plausibleUUID(id string) bool {
	if len(id) != 36 || id == "03000200-0400-0500-0006-000700080009" {
		return false
	}
	digits := map[rune]bool{}
	for _, r := range strings.ReplaceAll(id, "-", "") {
		digits[r] = true
	}
	return len(digits) >= 6
}
