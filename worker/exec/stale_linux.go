package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/musterhpc/muster"
)

// KillStale kills what is left of supervisors of this node that are dead: everything in their cgroups, and every process that
// carries the mark of one. An agent calls it at its start, before it registers, and when a supervisor has died. It returns how
// many processes it killed, once they are gone; an error names what does not go.
func KillStale(ctx context.Context, c SupervisorConfig) (int, error) {
	c, err := c.filled()
	if err != nil {
		return 0, err
	}
	groups, _ := findCgroups(c, ownIdentity()) // nil: none are mounted
	killed := map[identity]bool{}
	empty := 0
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		left := staleProcesses(c, groups)
		for _, p := range left {
			killed[identity{p.pid, p.start}] = true
		}
		if len(left) == 0 {
			removeStale(groups)
			// A dying supervisor's threads may hold its group for a moment. One that stays is empty, and does no harm.
			if empty++; empty == 5 || len(staleGroups(groups)) == 0 {
				return len(killed), nil
			}
		}
		for _, dir := range staleGroups(groups) {
			killCgroup(groups.version, filepath.Join(groups.track, dir))
		}
		killEach(left, syscall.SIGKILL)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return len(killed), fmt.Errorf("of a dead supervisor's tasks, %s", named(left))
		case <-timer.C:
		}
	}
}

// staleGroups lists the groups (below the mounts) of this node's dead supervisors.
func staleGroups(g *cgroups) []string {
	if g == nil {
		return nil
	}
	seen := map[string]bool{}
	var dirs []string
	for _, mount := range g.mounts() {
		entries, err := os.ReadDir(filepath.Join(mount, g.instance))
		if err != nil {
			continue
		}
		for _, entry := range entries {
			id, ok := parseIdentity(entry.Name())
			if ok && !id.alive() && !seen[entry.Name()] {
				seen[entry.Name()] = true
				dirs = append(dirs, filepath.Join(g.instance, entry.Name()))
			}
		}
	}
	return dirs
}

func staleProcesses(c SupervisorConfig, g *cgroups) []process {
	var list []process
	in := map[int]bool{}
	for _, dir := range staleGroups(g) {
		for _, p := range cgroupProcesses(filepath.Join(g.track, dir)) {
			in[p.pid] = true
			list = append(list, p)
		}
	}
	for _, p := range processes() {
		if in[p.pid] {
			continue
		}
		value, ok := environ(p.pid, markSupervisor)
		if !ok {
			continue
		}
		if rest, ours := strings.CutPrefix(value, c.Instance+"/"); ours {
			if id, ok := parseIdentity(rest); ok && !id.alive() {
				list = append(list, p)
			}
		}
	}
	return list
}

func removeStale(g *cgroups) {
	if g == nil {
		return
	}
	for _, dir := range staleGroups(g) {
		for _, mount := range g.mounts() {
			removeCgroup(filepath.Join(mount, dir))
		}
	}
	for _, mount := range g.mounts() {
		_ = os.Remove(filepath.Join(mount, g.instance)) // stays while a live supervisor has a group there
	}
}

// KillAlloc kills the processes of one allocation, past a supervisor that does not answer, when its lease has ended. It
// returns once they are gone, or with an error that names what is left when ctx ends.
func KillAlloc(ctx context.Context, c SupervisorConfig, id muster.AllocID) error {
	c, err := c.filled()
	if err != nil {
		return err
	}
	groups, _ := findCgroups(c, ownIdentity())
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		var left []process
		if groups != nil {
			dirs, err := filepath.Glob(filepath.Join(groups.track, groups.instance, "*", "*", id.String()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			for _, dir := range dirs {
				if list := cgroupProcesses(dir); len(list) > 0 {
					left = append(left, list...)
					killCgroup(groups.version, dir)
				}
			}
		}
		for _, p := range processes() {
			if hasTag(p.pid, tag(c.Instance, id)) {
				left = append(left, p)
			} else if value, ok := environ(p.pid, markAlloc); ok && value == id.String() {
				if value, _ := environ(p.pid, markSupervisor); strings.HasPrefix(value, c.Instance+"/") {
					left = append(left, p)
				}
			}
		}
		if len(left) == 0 {
			return nil
		}
		killEach(left, syscall.SIGKILL)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("of allocation %s, %s", id, named(left))
		case <-timer.C:
		}
	}
}
