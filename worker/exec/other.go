//go:build !linux

package exec

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/musterhpc/muster"
)

// Tasks run on Linux only; elsewhere the package compiles, so that the client's verbs can be built.
var errNeedsLinux = muster.Errorf(muster.KindError, "running tasks needs Linux")

var processStart = time.Now()

// Now reads a clock that only goes forward; it stands still while the machine is suspended.
func Now() BootTime { return BootTime(time.Since(processStart)) }

// Supervise needs Linux.
func Supervise(context.Context, SupervisorConfig) error { return errNeedsLinux }

// Host says that this host can't run tasks.
func Host(SupervisorConfig) HostAbilities {
	return HostAbilities{Fencing: "weak: running tasks needs Linux"}
}

// KillStale finds nothing to kill: no task was ever started here.
func KillStale(context.Context, SupervisorConfig) (int, error) { return 0, nil }

// KillAlloc finds nothing to kill: no task was ever started here.
func KillAlloc(context.Context, SupervisorConfig, muster.AllocID) error { return nil }

func dropInherited() {}

func peer(*net.UnixConn) (uid, pid int, err error) { return os.Geteuid(), 0, nil }
