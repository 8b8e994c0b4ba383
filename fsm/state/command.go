package state

import (
	"time"

	"github.com/musterhpc/muster"
)

// Command is one of the closed set of structs below: each a check(view) that may refuse, then an apply(tx) that cannot fail.
//
// Requests come from clients and workers, may be forwarded, and carry a Header. Duties are decided by the leader, are never
// forwarded, and carry the term they were decided in: Apply refuses one whose term is not the log entry's own, so that a
// deposed leader's decision never commits.
type Command interface {
	check(s *State) *muster.Error // why the state as it is refuses it; changes nothing
	apply(s *State) Result
}

// Entry is what one log entry holds: commands that were waiting together, applied in order, each for itself.
type Entry struct {
	Stamp    muster.Time // the proposing leader's wall clock; state time is max(last, stamped)
	Commands []Command
}

// Header goes with each request of a client.
type Header struct {
	RequestID string // "" = not remembered; else the result is kept for RequestRetention
	User      string // on whose behalf
}

// RequestRetention is how long a request id, its content's hash and its result are remembered. Clients retry for at most half.
const RequestRetention = 10 * time.Minute

// Submit makes jobs, all or none.
type Submit struct {
	Header
	Specs []*muster.JobSpec // validated, defaults filled in but those of their queues
	Pend  bool              // accept what no known node could ever run
	Name  string            // "" = the specs' own
	Hold  bool              // the jobs wait for a release

	// StartWithin cancels each job that has not been placed so long after the submission; 0 = it waits for ever.
	StartWithin time.Duration

	Groups []string // that the user is in, for queues that let groups submit; not part of what is asked for
}

// Cancel asks jobs to stop. Ended ones are left alone and noted.
type Cancel struct {
	Header
	Jobs []muster.JobID
	Mode muster.StopMode // StopSave, or StopKill for --now
}

// Release lets held jobs go on, their loop guard reset.
type Release struct {
	Header
	Jobs []muster.JobID
}

// Hold keeps jobs that wait from starting, until a Release. Refused, for all of them, where one is placed or has ended.
type Hold struct {
	Header
	Jobs []muster.JobID
}

// SetPriority changes the order of live jobs in their queue; refused, for all of them, where one has ended.
type SetPriority struct {
	Header
	Jobs     []muster.JobID
	Priority int // 0 to 100
}

// Requeue asks placed jobs to save themselves and end; each starts again as a new attempt, at its old place in the queue
// (class preempted). Refused, for all of them, where one has ended or is held.
type Requeue struct {
	Header
	Jobs []muster.JobID
}

// DrainNodes stops new starts on nodes. With HasDeadline, what still runs after Deadline is asked to save itself and stopped.
type DrainNodes struct {
	Header
	Nodes       []string
	Reason      string
	HasDeadline bool
	Deadline    time.Duration
}

// UndrainNodes takes a drain back.
type UndrainNodes struct {
	Header
	Nodes []string
}

// FenceNode is an operator's word that a machine is off: its allocations end now (class node).
type FenceNode struct {
	Header
	Node string
}

// RemoveNodes takes machines out of the cluster that are gone for good. Refused, for all of them, where one is alive or holds
// allocations. A worker of the name that registers later makes it a node again.
type RemoveNodes struct {
	Header
	Nodes []string
}

// LabelNode sets labels of a node over those of its agent's file, and takes such ones back. Refused where a key to be taken
// back was not set.
type LabelNode struct {
	Header
	Node   string
	Set    []muster.Label
	Remove []string // keys
}

// ApplyQueues replaces the queue tree and the policy. A queue that is missing is removed, refused while a job in it has not ended.
type ApplyQueues struct {
	Header
	Queues []muster.QueueSpec // sorted by name; the default queue stays without being named
	Policy muster.Policy
}

// RegisterNode is a worker's first word in a session: what the machine is, and the complete list of what it runs or has not
// had acknowledged. The state decides on each line: keep or kill (Result.Kill). What the state has placed there up to Seen
// and the list does not name has ended (class node); what was placed after Seen the worker has not heard of yet: it stays.
//
// Another Hardware under a known name is refused while the first holds allocations. A new Boot on the same hardware proves
// that nothing of the old one runs. Another Instance in the same boot is refused while allocations live: their supervisor may.
//
// Replaces is the session that the node had when the hello came in, NoSession when it had none; "" = not known. When the node
// has begun another since, the hello was overtaken on its way and says nothing of what is: it is refused. So is one whose Number
// is below that of the session which its data directory began: a server that slept may read a hello long after it was said,
// and by then know the session that came after it.
type RegisterNode struct {
	Node     muster.Node // descriptive fields only; ID, Epoch, Lost, Drain and the derived ones are the state's
	Seen     muster.Version
	Allocs   []muster.AllocReport
	Replaces string
}

// NoSession is what the hello of a node that has never registered replaces.
const NoSession = "none"

// ReportAllocs brings allocations forward. Late and duplicate reports change nothing.
type ReportAllocs struct {
	Node   muster.NodeID
	Allocs []muster.AllocReport
}

// InitCluster names a new cluster; refused when it has a name.
type InitCluster struct {
	ClusterID string
}

// CommitPlan is what a scheduling pass decided. Each gang is checked again against the state and taken whole or refused whole.
//
// Then each eviction is: its victims are stopped and what they leave is held for its job, or neither happens. A gang or an
// eviction never takes what is held for another job.
type CommitPlan struct {
	Term      uint64
	Gangs     []GangPlacement
	Unhold    []muster.JobID // whose holds are given up, before all else
	Evictions []Eviction
	Claims    []QueueClaim
}

// GangPlacement starts one attempt of a job.
type GangPlacement struct {
	Job     muster.JobID
	Attempt uint32 // the job's newest attempt + 1, else refused
	Ranks   []RankPlacement
}

// RankPlacement puts a rank on a node. Ranks stand in the order group, rank.
type RankPlacement struct {
	Group      int
	Rank       int
	Node       muster.NodeID
	Slots      muster.SlotSet
	Share      muster.MilliGPUs // of its one slot's GPU; 0 = whole GPUs
	MilliCores muster.MilliCores
	Memory     muster.Bytes
}

// EndLeases ends allocations of a node whose leases have provably run out (class node), and marks the node lost when Lost is
// set. Refused when the node has begun another session since.
type EndLeases struct {
	Term    uint64
	Node    muster.NodeID
	Session string
	Allocs  []muster.AllocID
	Lost    bool
	Reason  string
}

// Wake makes jobs eligible whose back-off has passed on the leader's monotonic clock.
type Wake struct {
	Term uint64
	Jobs []muster.JobID
}

// StartDue cancels jobs that were to start within a time which has passed.
type StartDue struct {
	Term uint64
	Jobs []muster.JobID
}

// DrainDue stops what still runs on a node whose drain deadline has passed.
type DrainDue struct {
	Term uint64
	Node muster.NodeID
}

// Purge forgets ended jobs and request ids that have outlived their retention. At most PurgeBatch jobs an entry.
type Purge struct {
	Term uint64
	Jobs []muster.JobID
}

// PurgeBatch bounds how many jobs one Purge names, so that it never stalls Apply.
const PurgeBatch = 256

// Result is what a command answers. For a request with an id it is remembered and given again to a retry.
type Result struct {
	Err     *muster.Error    // refused; nothing changed
	Jobs    []muster.JobID   // Submit: the new jobs' numbers, in order
	Notes   []string         // sentences for the caller: "1042 had already succeeded"
	Node    muster.NodeID    // RegisterNode: the node's number
	Kill    []muster.AllocID // RegisterNode: what the state does not know, or holds to have ended: kill it and forget it
	Refused []Refusal        // CommitPlan: gangs and evictions that the state at that index would not take
	Replay  bool             // the answer to an earlier request of the same id
}

// Refusal says why a gang of a plan was not taken.
type Refusal struct {
	Job    muster.JobID
	Reason string
}

// Changed names what an entry touched, so that only those who asked are woken. Each list is sorted and without repeats.
type Changed struct {
	Jobs   []muster.JobID
	Nodes  []muster.NodeID
	Queues []string
}
