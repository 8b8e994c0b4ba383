//go:build chaos

package chaos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// initVariable tells this program that it is the first process of a machine, and where its boot id stands.
const initVariable = "MUSTER_CHAOS_INIT"

// beInit is the first process of a machine: it gives the machine its own /proc and boot id, says so, reaps what is left to it,
// and ends, and everything of the machine with it, when its standard input does.
func beInit(bootFile string) error {
	reaped := make(chan os.Signal, 16)
	signal.Notify(reaped, syscall.SIGCHLD)
	err := errors.Join(
		unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
		unix.Mount(bootFile, "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, ""),
	)
	if err != nil {
		return fmt.Errorf("the machine's /proc: %w", err)
	}
	go func() {
		for range reaped {
			for {
				if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil || pid <= 0 {
					break
				}
			}
		}
	}()
	fmt.Println("up")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
