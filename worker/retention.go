package worker

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster"
)

// sweepEvery is how often old directories are looked for.
const sweepEvery = time.Hour

// touch notes the end of an allocation on its directories: they stay for a while after it.
func (a *Agent) touch(id muster.AllocID) {
	now := time.Now()
	for _, dir := range []string{a.cfg.taskDir(id), a.cfg.logDir(id)} {
		_ = os.Chtimes(dir, now, now) // one that never started has none
	}
}

// sweep removes the task directories and logs of allocations that ended KeepFor ago, and checkpoint directories in which
// nothing was saved. Saved checkpoints stay: whether they are needed only their owner knows.
func (a *Agent) sweep(ctx context.Context, now time.Time) {
	live := map[string]bool{}
	for t := range a.machine.All() {
		live[t.ID.String()] = true
		if t.Assignment != nil {
			live[t.Assignment.Alloc.Job.String()] = true
		}
	}
	before := now.Add(-a.cfg.KeepFor)
	a.work.Go(func() {
		for _, kind := range []string{"tasks", "logs", "checkpoints"} {
			entries, err := os.ReadDir(a.store.path(kind))
			if err != nil {
				a.log.Warn("old directories can't be looked for", "error", err)
			}
			for _, e := range entries {
				info, err := e.Info()
				if ctx.Err() != nil || err != nil || live[e.Name()] || info.ModTime().After(before) {
					continue
				}
				path := filepath.Join(a.store.path(kind), e.Name())
				if kind == "checkpoints" {
					_ = os.Remove(path) // fails, as it should, when something is in it
					continue
				}
				if _, err := muster.ParseAllocID(e.Name()); err != nil {
					continue // not ours
				}
				if err := removeAll(path); err != nil {
					a.log.Warn("an old directory can't be removed", "error", err)
				}
			}
		}
	})
}

// removeAll is os.RemoveAll that gets into directories whose owner took the right to write away.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error { // what can't be opened the next line names
		if d != nil && d.IsDir() {
			return os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}
