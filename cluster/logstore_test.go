package cluster

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// hangingLogs is a store whose writes may hang, or fail.
type hangingLogs struct {
	raft.LogStore

	mu   sync.Mutex
	hang chan struct{} // closed to let go; nil = does not hang
	fail error
}

func (l *hangingLogs) StoreLogs(logs []*raft.Log) error {
	l.mu.Lock()
	hang, fail := l.hang, l.fail
	l.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if fail != nil {
		return fail
	}
	return l.LogStore.StoreLogs(logs)
}

func (l *hangingLogs) hangUntil(released chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hang = released
}

func TestADiskThatHangsEndsTheProcess(t *testing.T) {
	ended := make(chan error, 1)
	w := newDiskWatch(func(err error) { ended <- err }, time.Millisecond)
	disk := &hangingLogs{LogStore: raft.NewInmemStore(), hang: make(chan struct{})}
	done := make(chan error)
	go func() { done <- (&watchedLogs{disk, w}).StoreLog(&raft.Log{Index: 1}) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the disk hangs, and nobody was told")
	}
	close(disk.hang)
	<-done
	w.close()
}

func TestADiskThatFailsEndsTheProcessAndIsNotTriedAgain(t *testing.T) {
	var ended []error
	w := newDiskWatch(func(err error) { ended = append(ended, err) }, time.Hour)
	defer w.close()
	broken := errors.New("input/output error")
	disk := &hangingLogs{LogStore: raft.NewInmemStore(), fail: broken}
	logs := &watchedLogs{disk, w}
	if err := logs.StoreLog(&raft.Log{Index: 1}); !errors.Is(err, broken) {
		t.Fatalf("got %v, want the disk's own error", err)
	}
	disk.fail = nil
	if err := logs.StoreLog(&raft.Log{Index: 1}); err == nil {
		t.Fatal("a write after a failed fsync was tried again")
	}
	if len(ended) != 1 {
		t.Fatalf("the process was ended %d times, want once", len(ended))
	}
}

type deletions struct {
	*raft.InmemStore
	ranges []string
}

func (d *deletions) DeleteRange(low, high uint64) error {
	d.ranges = append(d.ranges, fmt.Sprintf("%d-%d", low, high))
	return d.InmemStore.DeleteRange(low, high)
}

func TestTheLogIsDeletedInPiecesThatLeaveNoHole(t *testing.T) {
	w := newDiskWatch(func(error) {}, time.Hour)
	defer w.close()
	for _, test := range []struct {
		name      string
		low, high uint64
		want      []string
	}{
		{"compaction goes up", 1, 600, []string{"1-256", "257-512", "513-600"}},
		{"truncation goes down", 401, 1000, []string{"745-1000", "489-744", "401-488"}},
		{"one entry", 1, 1, []string{"1-1"}},
		{"the last entry", 1000, 1000, []string{"1000-1000"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			disk := &deletions{InmemStore: raft.NewInmemStore()}
			for i := uint64(1); i <= 1000; i++ {
				disk.StoreLog(&raft.Log{Index: i})
			}
			if err := (&watchedLogs{disk, w}).DeleteRange(test.low, test.high); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(disk.ranges) != fmt.Sprint(test.want) {
				t.Errorf("deleted %v, want %v", disk.ranges, test.want)
			}
		})
	}
}
