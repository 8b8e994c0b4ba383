package cluster

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// watchTick and watchTicks: a disk write that lasts 20 ticks of the watchdog's own ends the process. Ticks are counted, not
// read off a clock: a machine that was suspended for an hour has a healthy disk.
const (
	watchTick  = 100 * time.Millisecond
	watchTicks = 20
)

// deletePiece is how many entries one DeleteRange of the real store gets: a whole compaction in one transaction holds appends
// for some 80 ms.
const deletePiece = 256

// diskWatch ends the process when a write to disk hangs or fails. A leader whose disk hangs keeps sending heartbeats, and
// would stay leader without ever committing anything; and after a failed fsync nobody knows what is on the disk, so it is
// never tried again.
type diskWatch struct {
	fatal func(error)
	tick  time.Duration
	stop  chan struct{}
	wait  sync.WaitGroup

	mu      sync.Mutex
	writes  map[uint64]int // running writes: how many ticks each has seen
	next    uint64
	verdict error // set once, then every append fails with it
}

func newDiskWatch(fatal func(error), tick time.Duration) *diskWatch {
	w := &diskWatch{fatal: fatal, tick: tick, stop: make(chan struct{}), writes: map[uint64]int{}}
	w.wait.Go(w.run)
	return w
}

func (w *diskWatch) run() {
	ticker := time.NewTicker(w.tick)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
		}
		w.mu.Lock()
		hangs := false
		for id := range w.writes {
			w.writes[id]++
			hangs = hangs || w.writes[id] >= watchTicks
		}
		w.mu.Unlock()
		if hangs {
			w.condemn(fmt.Errorf("a write to the raft log has not come back for %v: the disk hangs", watchTicks*w.tick))
		}
	}
}

func (w *diskWatch) condemn(err error) {
	w.mu.Lock()
	first := w.verdict == nil
	if first {
		w.verdict = err
	}
	w.mu.Unlock()
	if first {
		w.fatal(err)
	}
}

// write runs f, which writes to disk.
func (w *diskWatch) write(f func() error) error {
	w.mu.Lock()
	w.next++
	id := w.next
	w.writes[id] = 0
	w.mu.Unlock()
	err := f()
	w.mu.Lock()
	delete(w.writes, id)
	w.mu.Unlock()
	if err != nil {
		w.condemn(fmt.Errorf("a write to the raft log failed: %w", err))
	}
	return err
}

// append is write for entries: after a verdict there is no other.
func (w *diskWatch) append(f func() error) error {
	w.mu.Lock()
	err := w.verdict
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.write(f)
}

func (w *diskWatch) close() {
	close(w.stop)
	w.wait.Wait()
}

// watchedLogs is a LogStore under a diskWatch, compacted in pieces.
type watchedLogs struct {
	raft.LogStore
	watch *diskWatch
}

func (l *watchedLogs) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *watchedLogs) StoreLogs(logs []*raft.Log) error {
	return l.watch.append(func() error { return l.LogStore.StoreLogs(logs) })
}

// DeleteRange removes [low, high] piece by piece. A compaction goes up from the low end, a truncation of entries that were
// never committed down from the high end, so that whatever is left after a crash has no hole.
func (l *watchedLogs) DeleteRange(low, high uint64) error {
	last, err := l.LogStore.LastIndex()
	if err != nil {
		return err
	}
	if high >= last {
		for end := high; ; end -= deletePiece {
			begin := low
			if end-low >= deletePiece {
				begin = end - deletePiece + 1
			}
			if err := l.watch.write(func() error { return l.LogStore.DeleteRange(begin, end) }); err != nil {
				return err
			}
			if begin == low {
				return nil
			}
		}
	}
	for begin := low; begin <= high; begin += deletePiece {
		end := min(begin+deletePiece-1, high)
		if err := l.watch.write(func() error { return l.LogStore.DeleteRange(begin, end) }); err != nil {
			return err
		}
	}
	return nil
}

// watchedStable is a StableStore (term and vote) under the same watch. Raft panics when it fails, so after a verdict on the log
// it goes on: what it writes is whole or not there, and Fatal is on its way.
type watchedStable struct {
	raft.StableStore
	watch *diskWatch
}

func (s *watchedStable) Set(key, value []byte) error {
	return s.watch.write(func() error { return s.StableStore.Set(key, value) })
}

func (s *watchedStable) SetUint64(key []byte, value uint64) error {
	return s.watch.write(func() error { return s.StableStore.SetUint64(key, value) })
}

// countedLogs counts the bytes appended since they were last asked for.
type countedLogs struct {
	raft.LogStore
	bytes atomic.Int64
}

func (l *countedLogs) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *countedLogs) StoreLogs(logs []*raft.Log) error {
	for _, log := range logs {
		l.bytes.Add(int64(len(log.Data)))
	}
	return l.LogStore.StoreLogs(logs)
}
