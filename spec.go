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

	PriorityOfQueue bool // nobody said a priority: submitted, it gets the queue's default
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
	Name        string        // the job's name when the job has no group blocks
	Count       int           // ranks
	Within      string        // "node" or a label key: never spread wider than one such domain; "" = anywhere
	Prefer      string        // like Within, "nvlink" too: the domain that is waited for; "" = the smallest that holds the gang
	Patience    time.Duration // how long to wait for Prefer before taking what there is
	MixedModels bool          // ranks may get different GPU models
	OnlyQuota   bool          // runs only inside its queue's quota, never on borrowed GPUs: it can't be preempted for a quota
	Constraints []Constraint
	Affinities  []Affinity
	Spreads     []Spread
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

// Affinity is welcome on a node, or with a negative weight unwelcome.
type Affinity struct {
	Attribute string // node.* or label.*
	Value     string
	Weight    int // -100..100, not 0
}

// Spread asks for ranks on nodes that differ in an attribute, as far as that is possible.
type Spread struct {
	Attribute string // node.* or label.*
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
	Every  time.Duration // how often the job saves by itself: bounds the work that a preemption loses; 0 = not known
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
	Start        Start
	Dir          string // absolute; "" = the task directory
	Env          []EnvVar
	EnvFromFile  []string // absolute; read on the node as the user, never stored or shown
	Upload       []string // what was packed at submit, relative to the folder of the job file
	KillSignal   string   // "SIGTERM"
	KillTimeout  time.Duration
	SuccessCodes []int
	Logs         Logs
	Resources    Resources
}

// Start says which ranks run the task.
type Start uint8

// The ways to start.
const (
	StartEach  Start = iota // every rank runs it
	StartFirst              // rank 0 runs it, the others only hold their place
)

// EnvVar is an environment variable, in the order the user wrote it.
type EnvVar struct{ Name, Value string }

// Logs bounds what is kept of a task's output.
type Logs struct {
	MaxSize  Bytes // of a segment
	MaxFiles int
	Path     string // also written there, as the user; run-time values may stand in it; "" = nowhere else
}

// Resources is what one rank needs.
type Resources struct {
	GPUs       int
	MilliCores MilliCores // 0: the GPUs' part of the node's cores
	Memory     Bytes      // 0: the GPUs' part of 95 % of the node's memory
	Exclusive  bool       // the whole node
	Models     []string   // any of these GPU models, a whole word of the device's name, case ignored; empty: any
	MinMemory  Bytes      // of a GPU, nominal: 95 % of it is enough
	Share      MilliGPUs  // of one GPU; 0 = whole GPUs
	MIG        string     // a slice of that profile, as in "1g.10gb"; "" = none
	Disk       Bytes      // room on the node's disk; 0 = whatever there is
}
