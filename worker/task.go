package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/worker/exec"
	"github.com/musterhpc/muster/worker/step"
)

// Task fills in what a supervisor needs to run an assignment; nothing of ${…} is left. The lease is the caller's matter.
func Task(a *step.Assignment, f *Facts, logDir string) (exec.Task, error) {
	env, err := Environment(a, f)
	if err != nil {
		return exec.Task{}, err
	}
	g, lookup := a.Of(), RuntimeValues(a, f)
	t := exec.Task{
		Alloc: a.Alloc.ID, Job: a.Alloc.Job, Attempt: a.Alloc.Attempt,
		TaskDir: f.TaskDir, LogDir: logDir, Logs: exec.LogLimits{MaxSize: g.Task.Logs.MaxSize, MaxFiles: g.Task.Logs.MaxFiles}, StopFile: f.stopFile(),
		MilliCores: a.Alloc.MilliCores, Memory: a.Alloc.Memory,
		MemoryUnset: g.Task.Resources.Memory == 0 && !g.Task.Resources.Exclusive, TimeLimit: a.Spec.TimeLimit, Checkpoint: g.Checkpoint,
		KillSignal: g.Task.KillSignal, KillTimeout: g.Task.KillTimeout, Success: g.Task.SuccessCodes,
		Lease: a.Alloc.Lease,
	}
	for _, v := range env {
		t.Env = append(t.Env, v.Name+"="+v.Value)
	}
	fill := func(where, text string) string {
		s, problem := muster.Expand(text, lookup)
		if problem != nil && err == nil {
			err = fmt.Errorf("%s: %w", where, problem)
		}
		return s
	}
	t.Dir = fill("dir", g.Task.Dir)
	if t.Dir == "" {
		t.Dir = f.TaskDir
	}
	if t.LogPath = fill("logs.path", g.Task.Logs.Path); t.LogPath != "" && !filepath.IsAbs(t.LogPath) {
		t.LogPath = filepath.Join(t.Dir, t.LogPath)
	}
	if g.Task.Start == muster.StartFirst && a.Alloc.Rank > 0 {
		holdPlace(&t)
		return t, err
	}
	if g.Task.Script != "" {
		t.Script = fill("script", g.Task.Script)
	} else {
		t.Argv = []string{fill("command", g.Task.Command)}
		for _, arg := range g.Task.Args {
			t.Argv = append(t.Argv, fill("args", arg))
		}
	}
	return t, err
}

// holdPlace makes a task do nothing until it is stopped: its place, its limits and its devices are there for what the first rank
// starts in it. It has nothing to save, and lasts as long as the first rank takes to.
func holdPlace(t *exec.Task) {
	t.Argv, t.KillSignal, t.Checkpoint.Signal = []string{"/bin/sh", "-c", "exec sleep 2147483647"}, "SIGTERM", ""
}

// setUp makes what a task finds in its directory, and the directory that is kept over the attempts. That one's parent must be
// there: where a shared folder is not mounted, what a job saves would be lost on this node's own disk.
func setUp(a *step.Assignment, f *Facts) error {
	for _, dir := range []string{f.TaskDir, f.tempDir(), filepath.Dir(f.stopFile())} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	switch err := os.Mkdir(f.Checkpoint, 0o700); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the folder for checkpoints, %s, isn't there", filepath.Dir(f.Checkpoint))
	case err != nil && !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("the folder for checkpoints: %w", err)
	}
	return os.WriteFile(f.hostFile(), []byte(hostFile(a)), 0o600)
}

// deadline is when an attempt that starts at now ends by its time limit. Ranks that then wait for the others of their gang
// start later and have that much longer: what a task is told is never too late.
func deadline(spec *muster.JobSpec, now time.Time) time.Time {
	if spec.TimeLimit == 0 {
		return time.Time{}
	}
	return now.Add(spec.TimeLimit)
}

// masterInterface is the network interface of the route to the master; "" when it can't be told. Nothing is sent.
func masterInterface(master string) string {
	addr, err := netip.ParseAddr(master)
	if err != nil {
		return ""
	}
	conn, err := net.Dial("udp", netip.AddrPortFrom(addr, 9).String())
	if err != nil {
		return ""
	}
	local := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	_ = conn.Close() // nothing was sent on it
	interfaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range interfaces {
		addrs, _ := i.Addrs() // an interface that has gone meanwhile has none
		for _, a := range addrs {
			ip, _, _ := strings.Cut(a.String(), "/")
			if ip, err := netip.ParseAddr(ip); err == nil && ip.Unmap().WithZone("") == local.WithZone("") {
				return i.Name
			}
		}
	}
	return ""
}
