package state

import (
	"cmp"
	"iter"
	"slices"

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
	Preempted muster.Time    // when a plan stopped jobs for others last
	Policy    *muster.Policy // how the cluster schedules; nil: muster.DefaultPolicy
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

// The keys of the other indexes, in the order they sort by.
type (
	endedKey struct {
		finished muster.Time
		job      muster.JobID
	}
	startKey struct { // of jobs never placed that are to start by a time
		by  muster.Time
		job muster.JobID
	}
	nameKey struct { // live jobs first, then the newest
		hash  uint64 // of user and name; the job's row says whether they are the ones
		ended bool
		job   muster.JobID
	}
	jobAllocKey struct {
		job     muster.JobID
		attempt uint32
		alloc   muster.AllocID
	}
	nodeAllocKey struct { // of allocations that have not ended
		node  muster.NodeID
		alloc muster.AllocID
	}
	nodeNameKey struct {
		name string
		node muster.NodeID
	}
	gpuKey struct {
		uuid string
		node muster.NodeID
		slot int
	}
	expiryKey struct {
		expires muster.Time
		request string
	}
)

// tables is all that is replicated, and what is derived from it.
type tables struct {
	cluster  Cluster
	queues   table[string, muster.Queue]
	nodes    table[muster.NodeID, muster.Node]
	shapes   table[muster.ShapeID, ShapeRow]
	specs    table[muster.SpecID, SpecRow]
	jobs     table[muster.JobID, muster.Job]
	allocs   table[muster.AllocID, muster.Allocation]
	requests table[string, RequestRow]
	holds    table[muster.JobID, HoldRow]
	usage    table[usageKey, UsageRow]
	history  table[historyKey, HistoryRow]

	pending    index[PendingKey]
	backingOff index[muster.JobID]
	ended      index[endedKey]
	starts     index[startKey]
	names      index[nameKey]
	jobAllocs  index[jobAllocKey]
	nodeAllocs index[nodeAllocKey]
	nodeNames  index[nodeNameKey]
	gpus       index[gpuKey]
	nodeHolds  index[holdKey]
}

func newTables() tables {
	return tables{
		queues: newTable(cmp.Less[string], writeQueue, nil),
		nodes:  newTable(cmp.Less[muster.NodeID], writeNode, nil),
		shapes: newTable(cmp.Less[muster.ShapeID], writeShapeRow, nil),
		specs: newTable(func(a, b muster.SpecID) bool { return string(a[:]) < string(b[:]) },
			writeSpecRow, nil),
		jobs: newTable(cmp.Less[muster.JobID], writeJob,
			func(j *muster.Job) { j.Attempts = slices.Clone(j.Attempts) }),
		allocs:   newTable(muster.AllocID.Less, writeAllocation, nil),
		requests: newTable(cmp.Less[string], writeRequest, nil),
		holds:    newTable(cmp.Less[muster.JobID], writeHold, nil),
		usage:    newTable(usageKey.less, writeUsage, nil),
		history: newTable(historyKey.less, writeHistory,
			func(r *HistoryRow) { r.Counts = slices.Clone(r.Counts) }),

		pending:    newIndex(PendingKey.less),
		backingOff: newIndex(cmp.Less[muster.JobID]),
		ended:      newIndex(endedKey.less),
		starts:     newIndex(startKey.less),
		names:      newIndex(nameKey.less),
		jobAllocs:  newIndex(jobAllocKey.less),
		nodeAllocs: newIndex(nodeAllocKey.less),
		nodeNames:  newIndex(nodeNameKey.less),
		gpus:       newIndex(gpuKey.less),
		nodeHolds:  newIndex(holdKey.less),
	}
}

func (t *tables) freeze() tables {
	return tables{
		cluster:    t.cluster,
		queues:     t.queues.freeze(),
		nodes:      t.nodes.freeze(),
		shapes:     t.shapes.freeze(),
		specs:      t.specs.freeze(),
		jobs:       t.jobs.freeze(),
		allocs:     t.allocs.freeze(),
		requests:   t.requests.freeze(),
		holds:      t.holds.freeze(),
		usage:      t.usage.freeze(),
		history:    t.history.freeze(),
		pending:    t.pending.freeze(),
		backingOff: t.backingOff.freeze(),
		ended:      t.ended.freeze(),
		starts:     t.starts.freeze(),
		names:      t.names.freeze(),
		jobAllocs:  t.jobAllocs.freeze(),
		nodeAllocs: t.nodeAllocs.freeze(),
		nodeNames:  t.nodeNames.freeze(),
		gpus:       t.gpus.freeze(),
		nodeHolds:  t.nodeHolds.freeze(),
	}
}

func (k PendingKey) less(o PendingKey) bool {
	if k.Queue != o.Queue {
		return k.Queue < o.Queue
	}
	if k.User != o.User {
		return k.User < o.User
	}
	if k.Priority != o.Priority {
		return k.Priority > o.Priority
	}
	if k.Shape != o.Shape {
		return k.Shape < o.Shape
	}
	return k.Job < o.Job
}

func (k endedKey) less(o endedKey) bool {
	if k.finished != o.finished {
		return k.finished < o.finished
	}
	return k.job < o.job
}

func (k startKey) less(o startKey) bool {
	if k.by != o.by {
		return k.by < o.by
	}
	return k.job < o.job
}

func (k nameKey) less(o nameKey) bool {
	if k.hash != o.hash {
		return k.hash < o.hash
	}
	if k.ended != o.ended {
		return o.ended
	}
	return k.job > o.job
}

func (k jobAllocKey) less(o jobAllocKey) bool {
	if k.job != o.job {
		return k.job < o.job
	}
	if k.attempt != o.attempt {
		return k.attempt < o.attempt
	}
	return k.alloc.Less(o.alloc)
}

func (k nodeAllocKey) less(o nodeAllocKey) bool {
	if k.node != o.node {
		return k.node < o.node
	}
	return k.alloc.Less(o.alloc)
}

func (k nodeNameKey) less(o nodeNameKey) bool {
	if k.name != o.name {
		return k.name < o.name
	}
	return k.node < o.node
}

func (k gpuKey) less(o gpuKey) bool {
	if k.uuid != o.uuid {
		return k.uuid < o.uuid
	}
	if k.node != o.node {
		return k.node < o.node
	}
	return k.slot < o.slot
}

func (k expiryKey) less(o expiryKey) bool {
	if k.expires != o.expires {
		return k.expires < o.expires
	}
	return k.request < o.request
}

// What of a job's row its indexes and counters hang on.
type standing struct {
	exists     bool
	pending    PendingKey
	isPending  bool
	backingOff bool
	name       nameKey
	ended      endedKey
	isEnded    bool
	start      startKey
	hasStart   bool
	waits      bool // counts as pending in its queue
	placed     bool // counts as running there
}

func standingOf(j *muster.Job) standing {
	if j == nil {
		return standing{}
	}
	ended := j.Phase.Terminal()
	return standing{
		exists:     true,
		pending:    PendingKey{Queue: j.Queue, User: j.User, Priority: j.Priority, Shape: j.Shape, Job: j.ID},
		isPending:  j.Phase == muster.JobPending && j.Backoff == 0,
		backingOff: j.Phase == muster.JobPending && j.Backoff != 0,
		name:       nameKey{hash: nameHash(j.User, j.Name), ended: ended, job: j.ID},
		ended:      endedKey{j.Finished, j.ID},
		isEnded:    ended,
		start:      startKey{j.StartBy, j.ID},
		hasStart:   startsBy(j),
		waits:      j.Phase == muster.JobPending,
		placed:     j.Phase.Placed(),
	}
}

// startsBy says whether a job is still to start by a time: it is not cancelled any more once it was placed.
func startsBy(j *muster.Job) bool { return j.StartBy != 0 && j.Attempt == 0 && !j.Phase.Terminal() }

// nameHash stands for a user's jobs of one name.
func nameHash(user, name string) uint64 {
	var room [64]byte
	return hash64(append(append(append(room[:0], user...), 0), name...))
}

// reindex moves a job in the indexes from where it stood to where it stands.
func (t *tables) reindex(id muster.JobID, was, is standing) {
	t.pending.move(was.pending, was.isPending, is.pending, is.isPending)
	t.backingOff.move(id, was.backingOff, id, is.backingOff)
	t.names.move(was.name, was.exists, is.name, is.exists)
	t.ended.move(was.ended, was.isEnded, is.ended, is.isEnded)
	t.starts.move(was.start, was.hasStart, is.start, is.hasStart)
}

func (t *tables) nodeNamed(name string) *muster.Node {
	for k := range t.nodeNames.from(nodeNameKey{name: name}) {
		if k.name == name {
			return t.nodes.get(k.node)
		}
		break
	}
	return nil
}

// presentNode is nodeNamed without those that were removed.
func (t *tables) presentNode(name string) *muster.Node {
	if n := t.nodeNamed(name); n != nil && !n.Removed {
		return n
	}
	return nil
}

// present yields the nodes that were not removed.
func (t *tables) present() iter.Seq[*muster.Node] {
	return func(yield func(*muster.Node) bool) {
		for n := range t.nodes.all() {
			if !n.Removed && !yield(n) {
				return
			}
		}
	}
}

// nodeOfGPU finds the node and slot of a GPU: where it is alive, else where it was seen last by number.
func (t *tables) nodeOfGPU(uuid string) (node *muster.Node, slot int) {
	for k := range t.gpus.from(gpuKey{uuid: uuid}) {
		if k.uuid != uuid {
			break
		}
		n := t.nodes.get(k.node)
		node, slot = n, k.slot
		if !n.Lost && n.GPUs[k.slot].Health != muster.GPULost {
			break
		}
	}
	return node, slot
}

// liveOn lists the allocations of a node that have not ended.
func (t *tables) liveOn(id muster.NodeID) []muster.AllocID {
	var out []muster.AllocID
	for k := range t.nodeAllocs.from(nodeAllocKey{node: id}) {
		if k.node != id {
			break
		}
		out = append(out, k.alloc)
	}
	return out
}

// allocsOf lists the allocations of a job's attempt.
func (t *tables) allocsOf(id muster.JobID, attempt uint32) []muster.AllocID {
	var out []muster.AllocID
	for k := range t.jobAllocs.from(jobAllocKey{job: id, attempt: attempt}) {
		if k.job != id || k.attempt != attempt {
			break
		}
		out = append(out, k.alloc)
	}
	return out
}
