package worker

import (
	"context"
	"path/filepath"

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

func (h *linuxHost) now() exec.BootTime { return exec.Now() }

func (h *linuxHost) fencing() string { return exec.Host(h.config).Fencing }
