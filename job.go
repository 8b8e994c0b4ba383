package muster

import "time"

// SpecID is the content hash (SHA-256, first 16 bytes) by which the state interns job specs.
type SpecID [16]byte

// Job is the replicated row of a job. Rows are values: published ones are never mutated. While a job pends for the first
// time the row is small and Attempts is nil.
type Job struct {
	ID        JobID
	Spec      SpecID
	Shape     ShapeID
	Name      string
	User      string
	Queue     string
	Priority  int
	Phase     JobPhase
	Submitted Time
	Started   Time // first time all ranks of an attempt ran
	Finished  Time
	StartBy   Time // cancelled when it has not been placed by then; 0 = it waits for ever

	Attempt         uint32        // number of the newest attempt; 0 = never placed
	Failures        uint32        // attempts that the job itself ended; counted against Retry.Attempts
	ClusterFailures uint32        // in a row, of a class that counts for the loop guard, each less than ten minutes long
	Backoff         time.Duration // > 0: pending, but not eligible until a duty says that so much time has passed
	Stop            Stop          // asked of the job; Mode StopNone = nothing

	Class    Class  // why it ended, or why it is held
	ExitCode int    // of the first failing rank
	Reason   string // one sentence for people
	Attempts []Attempt
}

// CodeNotStarted is the exit code of a job that was cancelled because it was not placed by StartBy.
const CodeNotStarted = 124

// Attempt is what is remembered of one attempt of a gang.
type Attempt struct {
	Number   uint32
	Placed   Time
	Started  Time // when its barrier opened
	Ended    Time // when its last rank ended; 0 = it lives
	Live     int  // its allocations that have not ended
	Unready  int  // its allocations that are not ready yet; the barrier opens at 0
	Waiting  int  // its allocations that do not run yet
	Class    Class
	ExitCode int
	Reason   string
	Culprit  AllocID // the rank that ended it; zero = none did
}

// Stop is how, and why, something is asked to end.
type Stop struct {
	Mode   StopMode
	Class  Class  // the class that the ended attempt gets
	Reason string // one sentence for people
	At     Time   // when it was asked
}

// StopMode is how much time a stop leaves. It only goes up.
type StopMode uint8

// The modes of a stop.
const (
	StopNone StopMode = iota
	StopSave          // checkpoint request, grace, kill signal, kill timeout, SIGKILL
	StopTerm          // kill signal, kill timeout, SIGKILL
	StopKill          // SIGKILL
)

// Allocation is the replicated row of one rank of one attempt on one node, with its resources. It holds them until it ended.
type Allocation struct {
	ID         AllocID
	Job        JobID
	Attempt    uint32
	Group      int // position in the spec
	Rank       int // in the group
	Node       NodeID
	Slots      SlotSet
	Share      MilliGPUs // of its one slot's GPU, which others may have shares of; 0 = its slots are its own
	MilliCores MilliCores
	Memory     Bytes
	Port       uint16        // the attempt's master port on this node; rank 0 of the first group only
	Lease      time.Duration // fixed at placement

	Phase AllocPhase
	Go    bool // the barrier is open: the worker may start the process
	Stop  Stop

	Placed   Time
	PlacedAt Index // in the replicated log; with ID.Epoch it says which views of the state know of it
	Running  Time
	Ended    Time
	Class    Class
	ExitCode int
	Signal   int    // that ended the process; 0 = none
	Message  string // one sentence for people
	Peak     Bytes  // of memory, where known
}

// AllocReport is what a worker says of an allocation.
type AllocReport struct {
	ID       AllocID
	Phase    AllocPhase // the phase it has reached
	Running  Time       // the worker's clock, for people only
	Ended    Time
	Class    Class
	ExitCode int
	Signal   int
	Message  string
	Peak     Bytes
}
