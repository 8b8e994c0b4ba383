// Package exec is how a process is started, isolated, watched, stopped and re-adopted: the supervisor process, its protocol
// with the agent, cgroups, namespaces, and the segments that a task's output goes to.
package exec

import (
	"time"

	"github.com/musterhpc/muster"
)

// BootTime is a reading of CLOCK_BOOTTIME: it goes on while the machine is suspended, and no one can set it.
type BootTime time.Duration

// Task is what a supervisor runs: the process of one rank. The agent has filled everything in; nothing of ${…} is left.
type Task struct {
	Alloc   muster.AllocID
	Job     muster.JobID // ranks of one job and attempt on a node share their namespaces
	Attempt uint32

	Argv    []string // Argv[0] is looked up in the PATH of Env; not found is class exit, code 127
	Script  string   // not "": written to the task directory, 0700, and run instead of Argv (Argv is then nil)
	Env     []string
	Dir     string // absolute; must exist, else class prepare with the node named
	TaskDir string // made by Prepare with mode 0700

	LogDir   string // segments of this allocation
	Logs     muster.Logs
	StopFile string // appears when the task is asked to save itself

	MilliCores  muster.MilliCores
	Memory      muster.Bytes
	TimeLimit   time.Duration // from the start of the process; 0 = none; the checkpoint request comes Checkpoint.Grace early
	Checkpoint  muster.Checkpoint
	KillSignal  string
	KillTimeout time.Duration
	Success     []int // exit codes that are a success

	Lease    time.Duration // length; the kill comes max(2 s, 10 %) before the end
	LeaseEnd BootTime      // first end; later ones come by Extend
}

// Status is what a supervisor knows of a task. An ended one stays until Forget.
type Status struct {
	Alloc    muster.AllocID
	Phase    muster.AllocPhase // AllocReady (prepared), AllocRunning, AllocStopping, AllocEnded
	Pid      int               // in the supervisor's own pid namespace; 0 = none
	PidStart uint64            // start time of Pid in clock ticks since boot: a recycled pid has another
	Running  time.Time
	Ended    time.Time
	Class    muster.Class // why it ended; ClassNone: with a success code and not asked to stop
	ExitCode int          // 128 + Signal for a signal
	Signal   int
	Message  string
	Peak     muster.Bytes
}
