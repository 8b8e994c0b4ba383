//go:build chaos && linux

package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/cluster"
)

// injectFaults makes a server what the files in the folder MUSTER_CHAOS say. They are read again and again:
//
//	compact  its log is compacted often; read once, at the start
//	clock   how far the wall clock is off, and how fast it drifts as a fraction: "1h 0.02"; not there: it is right
//	boot    how fast the clock that leases are measured by drifts, as a fraction: "-0.04"; not there: it keeps its pace
//	disk    "fail": writes to the raft log fail; "hang": they don't come back; not there: it is well
func injectFaults(c *cluster.Config) {
	dir := os.Getenv("MUSTER_CHAOS")
	if dir == "" {
		return
	}
	f := &faults{dir: dir, began: time.Now()}
	f.read()
	go func() { // for as long as the process lives
		for range time.Tick(20 * time.Millisecond) {
			f.read()
		}
	}()
	c.Clock.Wall, c.Clock.Boot = f.wall, f.boot
	if _, err := os.Stat(filepath.Join(dir, "compact")); err == nil {
		c.Snapshots = cluster.Snapshots{Entries: 200, Trailing: 100, Every: 5 * time.Second} // so that servers that lag need one
	}
	c.WrapLogs = func(s raft.LogStore) raft.LogStore { return &faultyLogs{s, f} }
}

type faults struct {
	dir    string
	began  time.Time
	offset atomic.Int64
	drift  atomic.Uint64 // bits of a float64
	disk   atomic.Value  // string

	mu    sync.Mutex
	pace  float64       // drift of the clock of leases
	seen  time.Duration // of CLOCK_BOOTTIME, when it was looked at last
	shown time.Duration
}

func (f *faults) read() {
	disk, _ := os.ReadFile(filepath.Join(f.dir, "disk"))
	f.disk.Store(strings.TrimSpace(string(disk)))
	var offset time.Duration
	var drift float64
	if clock, err := os.ReadFile(filepath.Join(f.dir, "clock")); err == nil {
		if words := strings.Fields(string(clock)); len(words) == 2 {
			offset, _ = time.ParseDuration(words[0])
			drift, _ = strconv.ParseFloat(words[1], 64)
		}
	}
	pace, _ := os.ReadFile(filepath.Join(f.dir, "boot"))
	f.mu.Lock()
	f.pace, _ = strconv.ParseFloat(strings.TrimSpace(string(pace)), 64)
	f.mu.Unlock()
	f.offset.Store(int64(offset))
	f.drift.Store(math.Float64bits(drift))
}

func (f *faults) wall() time.Time {
	now := time.Now()
	drifted := float64(now.Sub(f.began)) * math.Float64frombits(f.drift.Load())
	return now.Add(time.Duration(f.offset.Load()) + time.Duration(drifted))
}

// boot never goes back: what it has gained or lost stays when it has its right pace again.
func (f *faults) boot() cluster.Boot {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("a kernel without CLOCK_BOOTTIME: " + err.Error())
	}
	now := time.Duration(t.Nano())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == 0 {
		f.seen, f.shown = now, now
	}
	passed := now - f.seen
	f.seen = now
	f.shown += passed + time.Duration(float64(passed)*f.pace)
	return cluster.Boot(f.shown)
}

// faultyLogs is a log on a disk that may fail or hang.
type faultyLogs struct {
	raft.LogStore
	faults *faults
}

var errInjected = errors.New("input/output error (injected)")

func (l *faultyLogs) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *faultyLogs) StoreLogs(logs []*raft.Log) error {
	for l.faults.disk.Load() == "hang" {
		time.Sleep(10 * time.Millisecond)
	}
	if l.faults.disk.Load() == "fail" {
		return errInjected
	}
	return l.LogStore.StoreLogs(logs)
}
