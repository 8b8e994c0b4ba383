// Package check judges what a chaos run left behind: what its clients were told, what the workers wrote down, what the tasks
// themselves said. All ran on one machine, so one CLOCK_BOOTTIME orders everything.
package check

import "github.com/musterhpc/muster"

// Moment is CLOCK_BOOTTIME in nanoseconds; 0 = never.
type Moment int64

// Op is what a client asked.
type Op string

// The operations.
const (
	Submit Op = "submit"
	Cancel Op = "cancel"
	Get    Op = "get"
	List   Op = "list"
)

// Call is one call of a client, with what it was told.
type Call struct {
	Client int    // calls of one client are one session: what it reads never goes back
	Op     Op     //
	Start  Moment // just before the call
	End    Moment // just after the answer

	// What was asked.
	RequestID string       `json:",omitempty"` // Submit, Cancel
	Name      string       `json:",omitempty"` // Submit: of the job, used once in a run
	Ranks     int          `json:",omitempty"` // Submit
	Job       muster.JobID `json:",omitempty"` // Cancel, Get
	Stale     bool         `json:",omitempty"` // Get, List
	Lease     int64        `json:",omitempty"` // Submit: stop_after in ns

	// What was answered. An error that says that nothing was done leaves no trace; Unknown: it may have been done, or may be yet.
	Unknown bool           `json:",omitempty"`
	Error   string         `json:",omitempty"` // "" = it was done
	IDs     []muster.JobID `json:",omitempty"` // Submit
	Jobs    []Job          `json:",omitempty"` // Get: one; List: all that are listed
	Version muster.Version // Get, List: of the state it was read from
}

// Job is a job as an answer showed it.
type Job struct {
	ID      muster.JobID
	Name    string
	State   string // muster.JobPhase in words
	Class   string `json:",omitempty"`
	Reason  string `json:",omitempty"`
	Exit    int    `json:",omitempty"`
	Attempt uint32 `json:",omitempty"`
	Ranks   []Rank `json:",omitempty"` // of the newest attempt; Get: of earlier ones too
}

// Rank is a rank of an attempt as an answer showed it.
type Rank struct {
	Alloc   muster.AllocID
	Group   string `json:",omitempty"`
	Rank    int
	Attempt uint32
	State   string // muster.AllocPhase in words
	Node    string
	Slots   []int  `json:",omitempty"` // positions of its GPUs on the node
	Class   string `json:",omitempty"`
	Exit    int    `json:",omitempty"`
	HasExit bool   `json:",omitempty"` // Exit was reported
	Signal  int    `json:",omitempty"`
}

// EventKind is what a worker wrote down.
type EventKind string

// The kinds of events of a worker.
const (
	Intent  EventKind = "intent"  // on the disk: it may be started from now on
	Running EventKind = "running" // its process was seen to run
	Ended   EventKind = "ended"   // no process of it is left
)

// Event is a line of a worker's journal, as its log says it.
type Event struct {
	Kind     EventKind
	At       Moment
	Machine  string // where it happened
	Node     string // what the worker there calls itself
	Instance string // of its data directory: a copied one has the same
	Boot     string // boot id
	Alloc    muster.AllocID
	Job      muster.JobID `json:",omitempty"` // Intent
	Attempt  uint32       `json:",omitempty"` // Intent
	Group    int          `json:",omitempty"` // Intent
	Rank     int          `json:",omitempty"` // Intent
	Slots    []int        `json:",omitempty"` // Intent
	Pid      int          `json:",omitempty"` // Running
	Class    string       `json:",omitempty"` // Ended
	Exit     int          `json:",omitempty"` // Ended
	Signal   int          `json:",omitempty"` // Ended
	Why      string       `json:",omitempty"` // Ended
}

// Beat is a task's own word that it lives: one process of a rank, from its first line to its last. Moments are cut down to 10 ms.
type Beat struct {
	Alloc   muster.AllocID
	Process string // tells processes of one allocation apart; every start of the program makes a new one
	Machine string
	Job     muster.JobID
	Attempt uint32
	Group   string
	Rank    int
	First   Moment
	Last    Moment
	Beats   int
	Longest int64 // ns between two lines, at most
}

// Digest is what a server said of its state.
type Digest struct {
	At     Moment
	Server string // id
	Name   string
	Index  muster.Index
	Digest string
	Term   uint64
	Leader bool
}

// Snapshot is one version of the state as one server gave it: every live allocation and every node's counters.
type Snapshot struct {
	At      Moment
	Version muster.Version
	Nodes   []Node
}

// Node is a node in a snapshot.
type Node struct {
	Name  string
	State string
	GPUs  int
	Free  []int // slots that it counts as free
	Held  []Held
}

// Held is what an allocation holds on a node.
type Held struct {
	Job   muster.JobID
	Rank  int
	State string
	Slots []int
}

// Fault is a fault that was injected, and when.
type Fault struct {
	Kind  string // "kill one server"
	What  string // the whole of it, as printed
	Begin Moment
	End   Moment // healed
	// Judged: a majority of servers was up all the time, and its links were good; the gap between acknowledged submissions is
	// judged only then.
	Judged bool
}

// Process is one that is left when everything has ended.
type Process struct {
	Machine string
	Pid     int
	Alloc   muster.AllocID
	Command string
}

// Evidence is all that a run left behind.
type Evidence struct {
	Seed      uint64
	Began     Moment
	Healed    Moment // the end of the last fault
	Finished  Moment // the workload had its time to end
	Calls     []Call
	Events    []Event // in the order of their times
	Beats     []Beat
	Digests   []Digest
	Snapshots []Snapshot
	Faults    []Fault
	Leftover  []Process
	Crashes   []string // a process that ended by itself with a panic: where, and its first line
	Final     []Job    // every job, as a linearizable read gave it at the end, with all ranks of all attempts
	LastJob   Call     // the submission of a job after everything was healed
	LastDone  Moment   // when that job had succeeded
	Problems  []string // what the suite itself has to complain of, e.g. the logs of two servers differ
}
