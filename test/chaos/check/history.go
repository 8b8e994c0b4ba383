// Package check judges what a cluster did under faults: each checker reads a recorded history and says which promises of
// the design were broken, in words that a person can act on. It touches nothing of the world, so a history that failed once
// is judged again at any time.
package check

import (
	"fmt"
	"time"

	"github.com/musterhpc/muster"
)

// Instant is nanoseconds on CLOCK_BOOTTIME. All machines of a run are on one kernel, so one clock orders everything.
type Instant int64

// Add gives the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub gives the time from other to t.
func (t Instant) Sub(other Instant) time.Duration { return time.Duration(t - other) }

// History is all that was written down of a run, in any order.
type History struct {
	Run       Run
	Calls     []Call
	Events    []Event
	Beats     []Beat
	Digests   []Digest
	Faults    []Fault
	Probes    []Probe
	Final     Final
	Leftovers []Leftover
}

// Run says what was run.
type Run struct {
	Seed    int64    `json:"seed"`
	Start   Instant  `json:"start"`
	End     Instant  `json:"end"`
	Servers []string `json:"servers"`          // the voters, by the names that faults use
	Replay  string   `json:"replay,omitempty"` // the command that plays the plan again
}

// Op is what a client asked for.
type Op string

// The operations of clients. A wait is a call that ended when the job had; it says nothing of the time before.
const (
	OpSubmit Op = "submit"
	OpCancel Op = "cancel"
	OpGet    Op = "get"
	OpList   Op = "list"
	OpWait   Op = "wait"
)

// Outcome is what the client learnt of its call.
type Outcome string

// The outcomes of calls. Refused means: certainly nothing was done. Whatever may have been done is unknown: no answer, a
// deadline, a broken connection, unavailable after the request was sent.
const (
	OK      Outcome = "ok"
	Refused Outcome = "refused"
	Unknown Outcome = "unknown"
)

// Call is one call of a client, each try its own. Tries of one request share Request.
type Call struct {
	Client  string         `json:"client"`
	Session string         `json:"session"`          // within which reads never go back; a new one for each new client object
	Server  string         `json:"server,omitempty"` // that it was sent to, where known
	Op      Op             `json:"op"`
	Request string         `json:"request,omitempty"` // request id of submit and cancel
	Names   []string       `json:"names,omitempty"`   // of the jobs submitted, each used in one request of the run only
	Jobs    []muster.JobID `json:"jobs,omitempty"`    // submit: as answered; cancel, get, wait: as asked
	Stale   bool           `json:"stale,omitempty"`
	Start   Instant        `json:"start"`
	End     Instant        `json:"end"` // of an unknown one too: when the client gave up
	Outcome Outcome        `json:"outcome"`
	Refusal muster.Kind    `json:"refusal,omitempty"`
	Error   string         `json:"error,omitempty"`

	Version  muster.Version `json:"version,omitzero"`   // of the state that a read was answered from; zero = not said
	Seen     []Seen         `json:"seen,omitempty"`     // what a read answered
	Complete bool           `json:"complete,omitempty"` // a list of all jobs, ended ones too: what it lacks does not exist
}

// Seen is a job as a read showed it.
type Seen struct {
	Job      muster.JobID `json:"job"`
	Name     string       `json:"name,omitempty"`
	State    string       `json:"state"` // as the API says it: pending, running, ...
	Attempt  uint32       `json:"attempt"`
	Class    string       `json:"class,omitempty"`
	ExitCode *int         `json:"exit_code,omitempty"`
	Count    int          `json:"count,omitempty"` // ranks that the job has
	Ranks    []Rank       `json:"ranks,omitempty"` // of the newest attempt, where the answer has them
}

// Rank is an allocation as the API showed it.
type Rank struct {
	Alloc    string `json:"alloc"` // "1-42"
	Group    string `json:"group,omitempty"`
	Rank     int    `json:"rank"`
	Attempt  uint32 `json:"attempt"`
	Node     string `json:"node"`
	State    string `json:"state"`
	Slots    []int  `json:"slots,omitempty"`
	Class    string `json:"class,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   int    `json:"signal,omitempty"`
}

// EventKind is what happened to an allocation on its machine.
type EventKind string

// The events of workers, in the order in which an allocation has them. Intent: the start is on the disk. Started: the process
// exists. Killed: the worker or its supervisor sent SIGKILL. Ended: no process is left.
const (
	Registered EventKind = "registered"
	Ready      EventKind = "ready"
	Intent     EventKind = "intent"
	Started    EventKind = "started"
	Killed     EventKind = "killed"
	Ended      EventKind = "ended"
)

// Event is one thing that a worker did.
type Event struct {
	Kind    EventKind    `json:"kind"`
	Time    Instant      `json:"time"` // when it was written down
	Node    string       `json:"node"`
	Machine string       `json:"machine,omitempty"` // where two machines have one node's name; "" = as Node
	Session string       `json:"session,omitempty"` // of the agent
	Boot    string       `json:"boot,omitempty"`
	Alloc   string       `json:"alloc,omitempty"` // "1-42"
	Job     muster.JobID `json:"job,omitempty"`
	Attempt uint32       `json:"attempt,omitempty"`
	Group   string       `json:"group,omitempty"`
	Rank    int          `json:"rank"`
	Slots   []int        `json:"slots,omitempty"`
	PID     int          `json:"pid,omitempty"`

	// Of Ended.
	Gone     Instant `json:"gone,omitempty"` // when the process was gone, as its supervisor saw it; 0 = nobody saw it
	Class    string  `json:"class,omitempty"`
	ExitCode int     `json:"exit_code,omitempty"`
	Signal   int     `json:"signal,omitempty"`
}

// Beat is a line that a task itself wrote: proof that it ran then.
type Beat struct {
	Time    Instant      `json:"time"`
	Node    string       `json:"node"`
	Machine string       `json:"machine,omitempty"` // as in Event
	Job     muster.JobID `json:"job"`
	Attempt uint32       `json:"attempt"`
	Group   string       `json:"group,omitempty"`
	Rank    int          `json:"rank"`
	PID     int          `json:"pid"`
	Alloc   string       `json:"alloc,omitempty"` // where the task knows it
}

// Digest is a sample of a server's state.
type Digest struct {
	Server string       `json:"server"`
	Time   Instant      `json:"time"`
	Epoch  muster.Epoch `json:"epoch"`
	Index  muster.Index `json:"index"`
	Digest string       `json:"digest"`
	Level  uint32       `json:"level"`            // feature level
	Broken string       `json:"broken,omitempty"` // what the recomputation of counters and invariants said
}

// Fault is something that was done to the cluster.
type Fault struct {
	Kind      string   `json:"kind"`
	Start     Instant  `json:"start"`
	End       Instant  `json:"end"`                 // when it was healed: processes run again, links are good
	Targets   []string `json:"targets,omitempty"`   // servers and machines that it hit
	Down      []string `json:"down,omitempty"`      // servers that were killed, stopped, or had no working disk
	Suspended []string `json:"suspended,omitempty"` // worker machines that stood still, tasks included
	Links     []Link   `json:"links,omitempty"`     // that were worse than usual
}

// Link is one direction between two of servers, machines, and "clients". "*" is every one of them.
type Link struct {
	From  string        `json:"from"`
	To    string        `json:"to"`
	Loss  float64       `json:"loss,omitempty"`  // 0 to 1; 1 = cut
	Delay time.Duration `json:"delay,omitempty"` // jitter included, at most
}

// Probe is a job that was submitted after the last fault to see that the cluster works.
type Probe struct {
	Job   muster.JobID `json:"job"`
	Asked Instant      `json:"asked"`
	Ran   Instant      `json:"ran,omitempty"` // its first beat or start; 0 = it never ran
}

// Final is the cluster as the API shows it when all is quiet.
type Final struct {
	Time  Instant  `json:"time"`
	Jobs  []Job    `json:"jobs"`
	Nodes []string `json:"nodes,omitempty"` // names, with their states: "w1 ready"
}

// Job is a job at the end.
type Job struct {
	ID       muster.JobID  `json:"id"`
	Name     string        `json:"name"`
	State    string        `json:"state"`
	Class    string        `json:"class,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	ExitCode *int          `json:"exit_code,omitempty"`
	Attempt  uint32        `json:"attempt"`
	Count    int           `json:"count"` // ranks that the job has
	Lease    time.Duration `json:"lease"` // its stop_after
	Attempts []Attempt     `json:"attempts,omitempty"`
	Ranks    []Rank        `json:"ranks,omitempty"` // of all attempts that are still known
	Ended    Instant       `json:"ended,omitempty"` // when the run first saw it ended; 0 = not known
}

// Attempt is an attempt at the end.
type Attempt struct {
	Number   uint32 `json:"number"`
	Class    string `json:"class,omitempty"`
	ExitCode int    `json:"exit_code,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Leftover is a process of a task that was found when all was quiet.
type Leftover struct {
	Time    Instant      `json:"time"`
	Machine string       `json:"machine"`
	PID     int          `json:"pid"`
	Command string       `json:"command"`
	Alloc   string       `json:"alloc,omitempty"` // as its cgroup or environment says
	Job     muster.JobID `json:"job,omitempty"`
	Attempt uint32       `json:"attempt,omitempty"`
	Rank    int          `json:"rank"`
}

// Violation is a broken promise.
type Violation struct {
	Checker string
	Time    Instant // where in the run to look; 0 = everywhere
	Message string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s", v.Checker, v.Message) }
