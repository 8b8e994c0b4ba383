package exec

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster"
)

// BootTime is a reading of CLOCK_BOOTTIME: it goes on while the machine is suspended, and no one can set it.
type BootTime time.Duration

// Add gives the reading d later.
func (t BootTime) Add(d time.Duration) BootTime { return t + BootTime(d) }

// Sub gives how long after other t is.
func (t BootTime) Sub(other BootTime) time.Duration { return time.Duration(t - other) }

// Task is what a supervisor runs: the process of one rank. The agent has filled everything in; nothing of ${…} is left.
// Its field names are the protocol's: see protocol.go before changing one.
type Task struct {
	Alloc   muster.AllocID
	Job     muster.JobID // ranks of one job and attempt on a node share their namespaces
	Attempt uint32

	Argv    []string // Argv[0] is looked up in the PATH of Env; not found is class exit, code 127
	Script  string   // not "": written to the task directory, 0700, and run instead of Argv (Argv is then nil)
	Env     []string // the supervisor adds MUSTER_ALLOC and MUSTER_SUPERVISOR
	Dir     string   // absolute; must exist, else class prepare with the node named; "" = TaskDir
	TaskDir string   // made by Prepare with mode 0700

	LogDir   string // segments of this allocation
	Logs     LogLimits
	LogPath  string `json:",omitempty"` // absolute; output is also appended to this file; "" = nowhere else
	StopFile string // appears when the task is asked to save itself

	MilliCores  muster.MilliCores
	Memory      muster.Bytes
	MemoryUnset bool          `json:",omitempty"` // the job names no memory: Memory is what it gets then
	TimeLimit   time.Duration // from the start of the process; 0 = none; the checkpoint request comes Checkpoint.Grace early
	Checkpoint  muster.Checkpoint
	KillSignal  string // "" = SIGTERM
	KillTimeout time.Duration
	Success     []int // exit codes that are a success; empty: 0

	Lease    time.Duration // length; the kill comes max(2 s, 10 %) before the end; 0 = none
	LeaseEnd BootTime      // first end; later ones come by Extend
}

// LogLimits bound a log; 0: as the job file's defaults.
type LogLimits struct {
	MaxSize  muster.Bytes // of a segment
	MaxFiles int          // segments that are kept
}

// Status is what a supervisor knows of a task. An ended one stays until Forget.
type Status struct {
	Alloc    muster.AllocID
	Phase    muster.AllocPhase // AllocPreparing, AllocReady (prepared), AllocRunning, AllocStopping, AllocEnded
	Pid      int               // in the supervisor's own pid namespace; 0 = none
	PidStart uint64            // start time of Pid in clock ticks since boot: a recycled pid has another
	Running  time.Time
	Ended    time.Time
	Class    muster.Class // why it ended; ClassNone: with a success code and not asked to stop
	ExitCode int          // 128 + Signal for a signal
	Signal   int
	Message  string // one sentence for people; while stopping: what keeps it
	Peak     muster.Bytes
}

// PrepareError says why a task can't be set up: class prepare.
type PrepareError struct{ Message string }

func (e *PrepareError) Error() string { return e.Message }

// check refuses what no agent may send, so that nothing later has to.
func (t *Task) check() error {
	bad := func(format string, args ...any) error {
		return muster.Errorf(muster.KindInvalid, "task %s: %s", t.Alloc, fmt.Sprintf(format, args...))
	}
	if t.Alloc.IsZero() {
		return bad("it has no allocation number")
	}
	if (len(t.Argv) == 0) == (t.Script == "") {
		return bad("exactly one of argv and script must be set")
	}
	for _, path := range []string{t.TaskDir, t.LogDir} {
		if !filepath.IsAbs(path) {
			return bad("directory %q is not absolute", path)
		}
	}
	if t.Dir != "" && !filepath.IsAbs(t.Dir) {
		return bad("directory %q is not absolute", t.Dir)
	}
	if t.LogPath != "" && !filepath.IsAbs(t.LogPath) {
		return bad("log file %q is not absolute", t.LogPath)
	}
	for _, name := range []string{t.KillSignal, t.Checkpoint.Signal} {
		if name == "" {
			continue
		}
		if _, err := ParseSignal(name); err != nil {
			return bad("%v", err)
		}
	}
	return nil
}

// workDir is where the process starts.
func (t *Task) workDir() string {
	if t.Dir == "" {
		return t.TaskDir
	}
	return t.Dir
}

// killSignal is what asks the task to end.
func (t *Task) killSignal() string {
	if t.KillSignal == "" {
		return "SIGTERM"
	}
	return t.KillSignal
}
