// Package state is the replicated state: tables, commands, immutable snapshots, invariants. No raft, no clock, no
// randomness, no float, no I/O: two servers that apply the same entries hold the same rows and the same digest.
package state

import (
	"iter"

	"github.com/musterhpc/muster"
)

// Cluster is the one row about the cluster itself.
type Cluster struct {
	ID        string
	Epoch     muster.Epoch
	Level     uint32      // feature level
	Time      muster.Time // of the last entry
	NextJob   muster.JobID
	NextAlloc uint64
	NextNode  muster.NodeID
	NextShape muster.ShapeID
}

// ShapeRow is an interned shape with the number of live (not ended) jobs that have it.
type ShapeRow struct {
	ID    muster.ShapeID
	Shape *muster.Shape
	Jobs  int
}

// SpecRow is an interned spec with the number of jobs that have it.
type SpecRow struct {
	ID   muster.SpecID
	Spec *muster.JobSpec
	Jobs int
}

// RequestRow remembers a request: its id, a hash of its content, its result, and until when.
type RequestRow struct {
	ID      string
	Content [16]byte
	Result  Result
	Expires muster.Time
}

// PendingKey orders pending jobs: queue, user, priority (highest first), shape, then number. Held and backing-off jobs are
// not in the index.
type PendingKey struct {
	Queue    string
	User     string
	Priority int
	Shape    muster.ShapeID
	Job      muster.JobID
}

// State is the writer's side. One goroutine applies; readers hold Snapshots.
type State struct{}

// New gives an empty state.
func New() *State { panic("contract") }

// Apply applies one log entry and gives a result for each of its commands. The rows of earlier snapshots are left alone.
func (s *State) Apply(e Entry, index muster.Index, term uint64) ([]Result, Changed) {
	panic("contract")
}

// Snapshot freezes the state as it is after the last Apply. Called by the writer only, once per entry; what it returns may
// be read by anyone for ever.
func (s *State) Snapshot() *Snapshot { panic("contract") }

// Snapshot is an immutable image of the state at one index.
type Snapshot struct{}

func (s *Snapshot) Version() muster.Version { panic("contract") }
func (s *Snapshot) Digest() uint64          { panic("contract") }
func (s *Snapshot) Cluster() Cluster        { panic("contract") }

func (s *Snapshot) Job(id muster.JobID) (*muster.Job, bool)              { panic("contract") }
func (s *Snapshot) Jobs(from muster.JobID) iter.Seq[*muster.Job]         { panic("contract") } // ascending
func (s *Snapshot) JobsBackward(from muster.JobID) iter.Seq[*muster.Job] { panic("contract") } // descending from ≤ from; 0 = newest
func (s *Snapshot) JobNamed(user, name string) (*muster.Job, bool)       { panic("contract") } // newest live, else newest
func (s *Snapshot) JobCount() int                                        { panic("contract") }
func (s *Snapshot) Spec(id muster.SpecID) *muster.JobSpec                { panic("contract") }
func (s *Snapshot) Shape(id muster.ShapeID) (ShapeRow, bool)             { panic("contract") }
func (s *Snapshot) Pending() iter.Seq[PendingKey]                        { panic("contract") }
func (s *Snapshot) IsPending(k PendingKey) bool                          { panic("contract") }
func (s *Snapshot) BackingOff() iter.Seq[*muster.Job]                    { panic("contract") }
func (s *Snapshot) Ended(before muster.Time) iter.Seq[muster.JobID]      { panic("contract") } // ended jobs, oldest end first, that ended before

func (s *Snapshot) Alloc(id muster.AllocID) (*muster.Allocation, bool)       { panic("contract") }
func (s *Snapshot) AllocsOfJob(id muster.JobID) iter.Seq[*muster.Allocation] { panic("contract") } // all attempts, by number
func (s *Snapshot) AllocsOfAttempt(id muster.JobID, attempt uint32) iter.Seq[*muster.Allocation] {
	panic("contract")
}
func (s *Snapshot) AllocsOnNode(id muster.NodeID) iter.Seq[*muster.Allocation] { panic("contract") } // that have not ended

func (s *Snapshot) Node(id muster.NodeID) (*muster.Node, bool)      { panic("contract") }
func (s *Snapshot) NodeNamed(name string) (*muster.Node, bool)      { panic("contract") }
func (s *Snapshot) NodeOfGPU(uuid string) (*muster.Node, int, bool) { panic("contract") }
func (s *Snapshot) Nodes() iter.Seq[*muster.Node]                   { panic("contract") } // by number

func (s *Snapshot) Queue(name string) (*muster.Queue, bool) { panic("contract") }
func (s *Snapshot) Queues() iter.Seq[*muster.Queue]         { panic("contract") }

// Rows yields every row, table by table in a fixed order, each in key order: the content of a snapshot file.
func (s *Snapshot) Rows() iter.Seq[Row] { panic("contract") }

// Row is one row of any table: *Cluster, *muster.Job, *SpecRow, *ShapeRow, *muster.Allocation, *muster.Node, *muster.Queue,
// *RequestRow.
type Row any

// Restore builds a state from the rows of a snapshot at index; it refuses rows that do not fit together.
func Restore(index muster.Index, rows iter.Seq2[Row, error]) (*State, error) { panic("contract") }

// CheckInvariants recomputes every derived counter and index and says the first thing that does not fit.
func (s *Snapshot) CheckInvariants() error { panic("contract") }
