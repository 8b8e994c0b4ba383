package muster

import (
	"strings"
	"time"
)

// DefaultQueue always exists.
const DefaultQueue = "default"

// Queue is the replicated row of a queue.
type Queue struct {
	Name string
	Spec *QueueSpec // what the queues file says; nil: nothing, see Rules

	// Derived: see Node. Of the queue's own jobs; those of the queues below it are in Use.
	Pending int       // jobs
	Running int       // jobs that hold resources
	GPUs    int       // held, those whole
	Shares  MilliGPUs // held, of GPUs of which others may have shares

	// What the queue is owed: while it may use its quota and holds less, the difference grows; while it holds more, it shrinks.
	Claim  int   // GPUs that a cluster as large as its quota would run of its jobs now, those of the queues below it included
	Owed   int64 // GPU-milliseconds, as of OwedAt; negative: it has used more than it claimed
	OwedAt Time
}

// Hold counts what an allocation holds, or with sign -1 no longer holds.
func (q *Queue) Hold(a *Allocation, sign int) {
	if a.Share > 0 {
		q.Shares += MilliGPUs(sign) * a.Share
	} else {
		q.GPUs += sign * a.Slots.Count()
	}
}

// HeldGPUs is how many GPUs the queue holds, the shares together rounded up.
func (q *Queue) HeldGPUs() int { return q.GPUs + int((q.Shares+WholeGPU-1)/WholeGPU) }

// OwedUntil reckons what the queue is owed at a time, when it has held so many GPUs since OwedAt.
func (q *Queue) OwedUntil(now Time, held int) int64 {
	quota := int64(q.Rules().QuotaGPUs())
	owed := q.Owed + int64(q.Claim-held)*int64(max(0, now-q.OwedAt))
	return min(max(owed, -quota*maxCredit), quota*maxDebt)
}

// The bounds of what a queue is owed, for each GPU of its quota: credit, by having used more, is a day at most.
const (
	maxCredit = 24 * 3600 * 1000
	maxDebt   = 7 * maxCredit
)

// QuotaGPUs is the quota over all models.
func (q *QueueSpec) QuotaGPUs() int {
	n := 0
	for _, quota := range q.Quota {
		n += quota.GPUs
	}
	return n
}

// Rules is what the queues file says of the queue, or what holds when it says nothing.
func (q *Queue) Rules() *QueueSpec {
	if q.Spec == nil {
		spec := NewQueueSpec(q.Name)
		return &spec
	}
	return q.Spec
}

// ParentQueue gives the name of the queue that a queue stands in; "" for one at the top.
func ParentQueue(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return ""
}

// QueueSpec is what the queues file says of a queue, with what children inherit filled in. It is immutable. Queues form a tree by
// their names: "research/nlp" is a child of "research". A limit of 0 is none.
type QueueSpec struct {
	Name string // path

	Weight      Milli    // share of what no quota claims, among siblings; 1000 is the usual one
	Allow       []string // users, "group:NAME"; empty: everyone
	Quota       []Quota  // guaranteed GPUs, sorted by model
	MaxGPUs     int      // never more
	UserGPUs    int      // one user never more
	MaxRunning  int      // jobs
	MaxPending  int      // jobs; an array counts as one
	Defaults    QueueDefaults
	Caps        QueueCaps
	MinRuntime  time.Duration // of an attempt, before it may be preempted
	Charge      Milli         // of what runs here, how much lowers its user's and the queue's share; 1000 is all
	Constraints []Constraint  // must hold on nodes that the queue's jobs use
	Budget      Budget
	Idle        IdleRule
}

// Milli is a number in thousandths.
type Milli int64

// Quota is how many GPUs of a model a queue is guaranteed; Model "" is any.
type Quota struct {
	Model string
	GPUs  int
}

// QueueDefaults fill in what a job leaves out. A zero says nothing.
type QueueDefaults struct {
	TimeLimit   time.Duration
	HasPriority bool
	Priority    int
}

// QueueCaps are what a job of the queue may ask for at most. A zero says nothing.
type QueueCaps struct {
	TimeLimit   time.Duration // a job without a limit asks for more than any
	HasPriority bool
	Priority    int
	StopAfter   time.Duration
}

// Budget bounds the GPU time that a queue uses in a calendar period (UTC): said from 80 % on, at 100 % new work waits.
type Budget struct {
	Period   string // "day", "week", "month"; "" = no budget
	GPUHours int64
}

// IdleRule says what happens to a job whose GPUs are hardly used.
type IdleRule struct {
	After  time.Duration // 0: no rule
	Below  int           // percent of GPU use
	Cancel bool          // else a warning
}

// NewQueueSpec is a queue of which the file says nothing but its name.
func NewQueueSpec(name string) QueueSpec { return QueueSpec{Name: name, Weight: 1000, Charge: 1000} }

// Policy is how the cluster schedules: the scheduling block of the queues file, part of the replicated state.
type Policy struct {
	FairShare      bool  // across queues by quota deficit and share; false: all as one queue
	Order          Order // inside a queue
	Reservations   int   // blocked jobs with a planned start
	MaxPreemptions int   // of one job in a day; 0 = no limit
	Backfill       Backfill
	Preemption     Preemption
	HalfLife       time.Duration // of past use
	Objective      Objective
	Round          time.Duration // preemption by OrderShortest at most this often; 0: whenever something changed
	WideGPUs       int           // a gang wider than this ...
	WideAfter      time.Duration // ... that has waited this long goes first
}

// DefaultPolicy is what holds until a queues file says otherwise.
func DefaultPolicy() Policy {
	return Policy{FairShare: true, Order: OrderFair, Reservations: 8, Backfill: BackfillEASY, Preemption: PreemptFair,
		HalfLife: 7 * 24 * time.Hour, Objective: ObjectiveThroughput, WideGPUs: 8, WideAfter: 10 * time.Hour}
}

// Order is how the jobs of a queue stand in line.
type Order string

// The orders.
const (
	OrderFair     Order = "fair"     // priority, then fair share among users, then age
	OrderFIFO     Order = "fifo"     // priority, then age
	OrderShortest Order = "shortest" // least expected remaining GPU time first
)

// Backfill says when a later job may start before an earlier one that is blocked.
type Backfill string

// The kinds of backfill.
const (
	BackfillEASY         Backfill = "easy"         // when it delays no reservation
	BackfillConservative Backfill = "conservative" // when it delays nobody ahead of it
	BackfillNone         Backfill = "none"
)

// Preemption says who may be stopped for whom.
type Preemption string

// The kinds of preemption.
const (
	PreemptFair     Preemption = "fair"     // quota reclaim across queues, priority inside one
	PreemptShortest Preemption = "shortest" // also by remaining time
	PreemptOff      Preemption = "off"
)

// Objective picks the weights of the placement score.
type Objective string

// The objectives.
const (
	ObjectiveThroughput Objective = "throughput"
	ObjectiveCost       Objective = "cost"
	ObjectiveLatency    Objective = "latency"
)

// The choices of a policy, the usual one first.
var (
	Orders      = []Order{OrderFair, OrderFIFO, OrderShortest}
	Backfills   = []Backfill{BackfillEASY, BackfillConservative, BackfillNone}
	Preemptions = []Preemption{PreemptFair, PreemptShortest, PreemptOff}
	Objectives  = []Objective{ObjectiveThroughput, ObjectiveCost, ObjectiveLatency}
)
