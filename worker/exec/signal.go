package exec

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ParseSignal reads a signal's name: "SIGTERM", "SIGUSR1". A name without SIG, or in small letters, is refused with the
// right one.
func ParseSignal(name string) (syscall.Signal, error) {
	if s := unix.SignalNum(name); s != 0 {
		return s, nil
	}
	guess := strings.ToUpper(name)
	if !strings.HasPrefix(guess, "SIG") {
		guess = "SIG" + guess
	}
	if unix.SignalNum(guess) != 0 {
		return 0, fmt.Errorf("signal %q is written %s", name, guess)
	}
	return 0, fmt.Errorf("there is no signal %q", name)
}

// signalName gives "SIGSEGV", or "signal 34" for one without a name.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
