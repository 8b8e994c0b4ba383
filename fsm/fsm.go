// Package fsm is the adapter between the replicated state and hashicorp/raft: it decodes log entries, applies them, publishes
// what came out, and reads and writes snapshot files. It decides nothing.
package fsm

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// Published is the state after one entry, or after several that raft had committed together.
type Published struct {
	Snapshot   *state.Snapshot
	Changed    state.Changed
	Everything bool         // it came from a snapshot file: any row may differ, and Changed is empty
	Index      muster.Index // of the newest entry in Snapshot
	Term       uint64       // of that entry; 0 when Everything is set
}

// FSM is raft's state machine. Raft calls it from one goroutine; Published may be read by anyone.
type FSM struct {
	state     *state.State
	published atomic.Pointer[Published]
	onApply   func(*Published)
	fatal     func(message string)
}

var _ raft.BatchingFSM = (*FSM)(nil)

// New gives an empty state machine. onApply, which may be nil, is called by raft's goroutine with each new root before the
// proposers of its entries are answered: it must be quick. fatal ends the process: it is called with a sentence for the
// administrator when the log holds what this program doesn't know, since going on would make this server differ from the
// others; should it return, New's FSM panics.
func New(onApply func(*Published), fatal func(message string)) *FSM {
	f := &FSM{state: state.New(), onApply: onApply, fatal: fatal}
	f.published.Store(&Published{Snapshot: f.state.Snapshot(), Everything: true})
	return f
}

// Published gives the newest root.
func (f *FSM) Published() *Published { return f.published.Load() }

// Apply applies one log entry; see ApplyBatch.
func (f *FSM) Apply(log *raft.Log) any { return f.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch applies log entries that were committed together, and publishes one root for all of them. The answer to an entry is
// the []state.Result of its commands; entries that hold no commands are passed over, and answered nil.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	var changed state.Changed
	var last *raft.Log
	for i, log := range logs {
		if log.Type != raft.LogCommand {
			continue
		}
		entry, err := wire.DecodeEntry(log.Data)
		if err != nil {
			f.stop(fmt.Sprintf("entry %d of the log can't be applied: %v. The server stops here, so as not to differ from the others: "+
				"install the version of muster that they run", log.Index, err))
		}
		results, touched := f.state.Apply(entry, muster.Index(log.Index), log.Term)
		answers[i] = results
		if last == nil {
			changed = touched
		} else {
			changed = merge(changed, touched)
		}
		last = log
	}
	if last != nil {
		f.publish(&Published{Snapshot: f.state.Snapshot(), Changed: changed, Index: muster.Index(last.Index), Term: last.Term})
	}
	return answers
}

func (f *FSM) publish(p *Published) {
	f.published.Store(p)
	if f.onApply != nil {
		f.onApply(p)
	}
}

func (f *FSM) stop(message string) {
	if f.fatal != nil {
		f.fatal(message)
	}
	panic(message)
}

// merge gives what either names.
func merge(a, b state.Changed) state.Changed {
	return state.Changed{Jobs: union(a.Jobs, b.Jobs), Nodes: union(a.Nodes, b.Nodes), Queues: union(a.Queues, b.Queues)}
}

// union merges two sorted lists without repeats into a new one.
func union[T cmp.Ordered](a, b []T) []T {
	if len(b) == 0 {
		return a
	}
	if len(a) == 0 {
		return b
	}
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// Snapshot freezes the newest root: it is immutable, so raft may write it while entries are applied.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) { return frozen{f.Published().Snapshot}, nil }

// frozen is a snapshot on its way to a file.
type frozen struct{ snapshot *state.Snapshot }

// Persist writes the snapshot file.
func (s frozen) Persist(sink raft.SnapshotSink) error {
	if err := WriteSnapshot(sink, s.snapshot); err != nil {
		_ = sink.Cancel() // the write's own error says more
		return fmt.Errorf("writing the snapshot: %w", err)
	}
	return sink.Close()
}

// Release has nothing to do: the garbage collector knows who still reads.
func (s frozen) Release() {}

// Restore replaces the state by that of a snapshot file. When it fails, the old state is left as it was.
func (f *FSM) Restore(file io.ReadCloser) error {
	defer file.Close()
	fresh, err := ReadSnapshot(file)
	if err != nil {
		return err
	}
	f.state = fresh
	snapshot := fresh.Snapshot()
	f.publish(&Published{Snapshot: snapshot, Everything: true, Index: snapshot.Version().Index})
	return nil
}
