package harness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// KillSupervisors is kill -9 of the supervisors of the agent whose data directory is dir; their tasks die with them.
func KillSupervisors(dir string) {
	for _, pid := range Supervisors(dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
	}
}

// Supervisors lists the pids of the supervisors of the agent whose data directory is dir.
func Supervisors(dir string) []int {
	dir += string(filepath.Separator)
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		words := strings.Split(string(line), "\x00")
		if len(words) < 2 || words[1] != "supervise" || !strings.Contains(string(line), dir) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
