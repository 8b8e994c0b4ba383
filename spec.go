package muster

import "time"

// JobSpec is what a user asked for, with every default filled in: the whole content of a job block. It is immutable; the
// state interns equal specs by content.
type JobSpec struct {
	Name      string        // [a-z]([a-z0-9-]{0,62}[a-z0-9])?
	Queue     string        // a queue's path
	Type      JobType       // batch
	Priority  int           // 0..100, orders jobs inside a queue
	TimeLimit time.Duration // of one attempt, from the start of its main task; 0 = none
	Labels    []Label       // sorted by key
	Groups    []Group       // at least one; all of them form one gang
}

// JobType says how a job ends.
type JobType uint8

// The types of jobs.
const (
	JobTypeUnknown JobType = iota
	Batch                  // runs to its end
)

// Ranks is the number of ranks of all groups.
func (s *JobSpec) Ranks() int {
	n := 0
	for i := range s.Groups {
		n += s.Groups[i].Count
	}
	return n
}

// GPUs is the number of GPUs of all ranks.
func (s *JobSpec) GPUs() int {
	n := 0
	for i := range s.Groups {
		n += s.Groups[i].Count * s.Groups[i].Task.Resources.GPUs
	}
	return n
}

// Label is a key and a value.
type Label struct{ Key, Value string }

// Group is a set of equal ranks.
type Group struct {
	Name        string // the job's name when the job has no group blocks
	Count       int    // ranks
	Within      string // "node" or a label key: never spread wider than one such domain; "" = anywhere
	Constraints []Constraint
	Retry       Retry
	Checkpoint  Checkpoint
	Disconnect  Disconnect
	Task        Task
}

// Constraint must hold on a node for a rank to be placed there.
type Constraint struct {
	Attribute string // node.* or label.*
	Operator  Operator
	Value     string // for in and not_in: values separated by commas
}

// Operator compares an attribute of a node with a value.
type Operator string

// The operators of constraints.
const (
	OpEqual        Operator = "="
	OpNotEqual     Operator = "!="
	OpGreater      Operator = ">"
	OpGreaterEqual Operator = ">="
	OpLess         Operator = "<"
	OpLessEqual    Operator = "<="
	OpIn           Operator = "in"
	OpNotIn        Operator = "not_in"
	OpMatches      Operator = "matches" // RE2, unanchored
	OpVersion      Operator = "version" // ">= 1.2, < 2" over dotted numbers
	OpExists       Operator = "exists"
)

// Retry says which failures of the job itself start a new attempt. What the cluster did is retried anyway.
type Retry struct {
	Attempts  int           // more attempts; 0 = none
	On        []Class       // of ClassExit, ClassOOM, ClassTimeout
	ExitCodes []int         // empty: any but the success codes
	Delay     time.Duration // doubled with each attempt
	MaxDelay  time.Duration
}

// Checkpoint says how a job is asked to save itself.
type Checkpoint struct {
	Grace  time.Duration // between the request and the kill signal
	Signal string        // "SIGUSR2"; "" = only the stop file
	To     SignalTarget
}

// SignalTarget says which processes of a rank get the checkpoint signal.
type SignalTarget uint8

// The targets of a checkpoint signal.
const (
	ToMain SignalTarget = iota
	ToAll
)

// Disconnect says what happens without contact to the servers.
type Disconnect struct {
	StopAfter time.Duration // the lease length, at least 10 s
	Replace   Replace
}

// Replace says when a lost rank may start elsewhere.
type Replace uint8

// The replacement rules.
const (
	ReplaceAfterStop   Replace = iota // when the lease proves that the old one is gone
	ReplaceImmediately                // at once; overlap is allowed
)

// Task is a process of a rank.
type Task struct {
	Name         string
	Script       string // a program text; "" = Command
	Command      string
	Args         []string
	Dir          string // absolute; "" = the task directory
	Env          []EnvVar
	KillSignal   string // "SIGTERM"
	KillTimeout  time.Duration
	SuccessCodes []int
	Logs         Logs
	Resources    Resources
}

// EnvVar is an environment variable, in the order the user wrote it.
type EnvVar struct{ Name, Value string }

// Logs bounds what is kept of a task's output.
type Logs struct {
	MaxSize  Bytes // of a segment
	MaxFiles int
}

// Resources is what one rank needs.
type Resources struct {
	GPUs       int
	MilliCores MilliCores // 0: the GPUs' part of the node's cores
	Memory     Bytes      // 0: the GPUs' part of 95 % of the node's memory
	Exclusive  bool       // the whole node
	Models     []string   // any of these GPU models, a whole word of the device's name, case ignored; empty: any
	MinMemory  Bytes      // of a GPU, nominal: 95 % of it is enough
}
