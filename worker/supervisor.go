package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/exec"
)

// Supervisor is what the agent needs of the process that runs its tasks; *exec.Supervisor is one.
type Supervisor interface {
	Prepare(ctx context.Context, t exec.Task) error
	Start(ctx context.Context, id muster.AllocID) error
	Stop(ctx context.Context, id muster.AllocID, stop muster.Stop) error
	Extend(ctx context.Context, ends map[muster.AllocID]exec.BootTime) (alive []muster.AllocID, err error)
	List(ctx context.Context) ([]exec.Status, error)
	Forget(ctx context.Context, ids []muster.AllocID) error
	Events() <-chan exec.Status
	Done() <-chan struct{}
	Close() error
}

// host is what the agent needs of the machine apart from a supervisor; tests have their own.
type host interface {
	// supervise finds the living supervisor or starts one. What one that has died left behind is killed first.
	supervise(ctx context.Context) (Supervisor, error)
	// exits are the ends on disk that nobody has forgotten.
	exits() []exec.Status
	forgetExits(ids []muster.AllocID) error
	// kill ends all processes of an allocation whose supervisor is silent.
	kill(ctx context.Context, id muster.AllocID) error
	// portFree says why the master port of a task can't be its: 0 needs none.
	portFree(port uint16) error
	now() exec.BootTime
	fencing() string
}

// linuxHost is the real one.
type linuxHost struct {
	binary string
	config exec.SupervisorConfig
}

func newHost(c *Config, instance string) *linuxHost {
	return &linuxHost{binary: c.Binary, config: exec.SupervisorConfig{
		RunDir: c.RunDir, StateDir: filepath.Join(c.DataDir, "supervisor"), Node: c.Name, Instance: instance, Logger: c.Logger,
	}}
}

func (h *linuxHost) supervise(ctx context.Context) (Supervisor, error) {
	if _, err := exec.KillStale(ctx, h.config); err != nil {
		return nil, err
	}
	s, err := exec.StartSupervisor(h.binary, h.config.RunDir, h.config)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (h *linuxHost) exits() []exec.Status { return exec.ReadExits(h.config.StateDir) }

func (h *linuxHost) forgetExits(ids []muster.AllocID) error {
	return exec.ForgetExits(h.config.StateDir, ids)
}

func (h *linuxHost) kill(ctx context.Context, id muster.AllocID) error {
	return exec.KillAlloc(ctx, h.config, id)
}

// portFree binds the port and lets it go. It does not listen, so that two who look at the same time don't meet.
func (h *linuxHost) portFree(port uint16) error {
	if port == 0 {
		return nil
	}
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		syscall.ForkLock.RUnlock()
		return nil // a machine without IPv4 can't tell
	}
	unix.CloseOnExec(fd)
	syscall.ForkLock.RUnlock()
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port)}); errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("port %d, the job's master port, is taken by another program", port)
	}
	return nil
}

func (h *linuxHost) now() exec.BootTime { return exec.Now() }

func (h *linuxHost) fencing() string {
	able := exec.Host(h.config)
	if able.Cgroup != "" && !able.Limits { // no fault of fencing, which then says nothing of it
		h.config.Logger.Warn("this host's cgroups have no memory: what tasks take is not limited", "cgroups", able.Cgroup)
	}
	return able.Fencing
}
