package exec

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// dropInherited lets go of what this process was started with and tasks must not get: open files, which a shell or a service
// manager may have left to the agent, and ignored signals, which nohup and background shells leave. Go's own files are
// closed on exec, so those that came through one are somebody else's.
func dropInherited() {
	paths, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return
	}
	for _, path := range paths {
		fd, err := strconv.Atoi(filepath.Base(path))
		if err != nil || fd <= int(os.Stderr.Fd()) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	// Go leaves these two ignored when they were, and handles all others: what is handled is back at its default after an exec.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT)
}
