package sim

import (
	"container/heap"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/scheduler"
)

// Queue is what a replay of jobs over time is given.
type Queue struct {
	Nodes    []Node
	Jobs     []Job              // in order of submission
	NoLimits bool               // the scheduler is not told the jobs' time limits
	Policy   *muster.Policy     // nil: the default one
	Queues   []muster.QueueSpec // sorted by name; none: each user is one
	Within   string             // a label of which a gang uses one value only
	Prefer   string             // a label whose smallest domain a gang would like
	Overhead time.Duration      // at the start of each run but a job's first, without progress
	Seed     uint64
	Progress func(ended, of int) // may be nil; called now and then
}

// Segment is one uninterrupted run of a job.
type Segment struct {
	Job        int // position in Queue.Jobs
	Start, End time.Duration
	Alloc      string // node:0-1-2;node:0-1
}

// maxPasses bounds the passes in one instant: a scheduler that has not come to rest by then never does.
const maxPasses = 10_000

// replay is a queue's run.
type replay struct {
	*Cluster
	cfg      *Queue
	queues   queueTree
	runs     []run // by position in cfg.Jobs
	position map[muster.JobID]int
	ends     endHeap
	segments []Segment
	reports  reports
	ended    int
	idle     idleTime
	perNode  int         // GPUs of the largest node
	wake     muster.Time // of the last pass: when the next is worth while though nothing happens; 0 = never
}

// run is where a job of the trace stands.
type run struct {
	id      muster.JobID
	number  uint32 // of the attempt that runs; 0: none
	since   time.Duration
	setup   time.Duration // of this run: without progress
	done    time.Duration // progress of earlier runs
	started bool          // it has run before
	ended   bool
	alloc   string
}

// RunQueue replays jobs. The scheduler sees what a live cluster's sees, and nothing else: submissions when they come, ends
// when they happen, and the jobs' limits.
func RunQueue(ctx context.Context, cfg *Queue) (*QueueResult, error) {
	c, err := newCluster(cfg.Nodes, cfg.Seed)
	if err != nil {
		return nil, err
	}
	queues := newQueueTree(cfg.Queues, cfg.Jobs)
	if err := c.applyQueues(queues, cfg.Policy); err != nil {
		return nil, err
	}
	r := &replay{Cluster: c, cfg: cfg, queues: queues, runs: make([]run, len(cfg.Jobs)), position: map[muster.JobID]int{}}
	for i := range cfg.Nodes {
		r.perNode = max(r.perNode, cfg.Nodes[i].GPUs)
		r.idle.total += cfg.Nodes[i].GPUs
	}
	for next := 0; r.ended < len(cfg.Jobs); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at, ok := r.nextInstant(next)
		if !ok {
			return nil, r.stuck()
		}
		r.idle.pass(at - r.now)
		r.now = at
		if next, err = r.instant(next); err != nil {
			return nil, fmt.Errorf("at %s: %w", muster.FormatDuration(r.now.Round(time.Second)), err)
		}
	}
	return r.result(), nil
}

// nextInstant is when something happens next: a submission or an end.
func (r *replay) nextInstant(next int) (time.Duration, bool) {
	at, ok := time.Duration(0), false
	if next < len(r.cfg.Jobs) {
		at, ok = r.cfg.Jobs[next].Submit, true
	}
	r.dropStale()
	if len(r.ends) > 0 && (!ok || r.ends[0].at < at) {
		at, ok = r.ends[0].at, true
	}
	if wake := r.wake.Sub(start); r.wake != 0 && wake > r.now && (!ok || wake < at) {
		at, ok = wake, true
	}
	return at, ok
}

// instant does all that happens now, and lets the scheduler come to rest. It gives the first job not submitted yet.
func (r *replay) instant(next int) (int, error) {
	for {
		r.dropStale()
		if len(r.ends) == 0 || r.ends[0].at > r.now {
			break
		}
		r.finish(heap.Pop(&r.ends).(ending).job)
	}
	first := next
	var users []string
	var specs []*muster.JobSpec
	for next < len(r.cfg.Jobs) && r.cfg.Jobs[next].Submit <= r.now {
		users = append(users, r.cfg.Jobs[next].User)
		specs = append(specs, r.spec(&r.cfg.Jobs[next]))
		next++
	}
	ids, err := r.submit(users, specs, r.reports.take()...)
	if err != nil {
		return next, err
	}
	for i, id := range ids {
		r.runs[first+i].id = id
		r.position[id] = first + i
	}
	return next, r.settle()
}

// settle runs passes until nothing more is decided.
func (r *replay) settle() error {
	for range maxPasses {
		plan := scheduler.Schedule(r.view, scheduler.Signals{}, r.time())
		r.wake = plan.Wake
		if plan.Empty() {
			r.idle.free, r.idle.waiting = r.freeGPUs(), r.waiting()
			return nil
		}
		results, err := r.apply(plan.Command(term))
		if err != nil {
			return err
		}
		for _, refusal := range results[0].Refused {
			return fmt.Errorf("the state refused what the scheduler decided for %s: %s", r.cfg.Jobs[r.position[refusal.Job]].ID, refusal.Reason)
		}
		for i := range plan.Gangs {
			r.begin(plan.Gangs[i].Job)
		}
		for i := range plan.Evictions {
			for _, victim := range plan.Evictions[i].Victims {
				r.stop(victim.Job)
			}
		}
		if commands := r.reports.take(); len(commands) > 0 {
			if _, err := r.apply(commands...); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("the scheduler has not come to rest after %d passes", maxPasses)
}

// begin starts a job that was placed: all its ranks run at once.
func (r *replay) begin(id muster.JobID) {
	job, _ := r.snap.Job(id)
	at := r.position[id]
	run, trace := &r.runs[at], &r.cfg.Jobs[at]
	live := r.liveAllocs(job)
	for _, a := range live {
		r.reports.add(a.Node, muster.AllocReport{ID: a.ID, Phase: muster.AllocRunning})
	}
	run.number, run.since, run.setup, run.alloc = job.Attempt, r.now, 0, r.allocText(live)
	if run.started {
		run.setup = r.cfg.Overhead
	}
	heap.Push(&r.ends, ending{r.now + run.setup + trace.Duration - run.done, at, run.number})
}

// stop ends the run of a job that was preempted: it has saved itself by the time that the others are told.
func (r *replay) stop(id muster.JobID) {
	at := r.position[id]
	r.close(at)
	job, _ := r.snap.Job(id)
	for _, a := range r.liveAllocs(job) {
		r.reports.add(a.Node, muster.AllocReport{ID: a.ID, Phase: muster.AllocEnded, Class: muster.ClassPreempted})
	}
}

// close ends a job's run and writes it down. One that ended as it began left no trace.
func (r *replay) close(at int) {
	run := &r.runs[at]
	if r.now > run.since {
		r.segments = append(r.segments, Segment{at, run.since, r.now, run.alloc})
		run.done += max(0, r.now-run.since-run.setup)
		run.started = true
	}
	run.number = 0
}

// finish ends a job that has done its work.
func (r *replay) finish(at int) {
	run := &r.runs[at]
	if run.alloc != "" && r.now == run.since { // a job of no length still ran
		r.segments = append(r.segments, Segment{at, run.since, r.now, run.alloc})
	}
	r.close(at)
	run.ended = true
	job, _ := r.snap.Job(run.id)
	for _, a := range r.liveAllocs(job) {
		r.reports.add(a.Node, muster.AllocReport{ID: a.ID, Phase: muster.AllocEnded})
	}
	r.ended++
	if r.cfg.Progress != nil && (r.ended%256 == 0 || r.ended == len(r.cfg.Jobs)) {
		r.cfg.Progress(r.ended, len(r.cfg.Jobs))
	}
}

// spec is what the cluster is told of a job: a gang on as few nodes as its GPUs need.
func (r *replay) spec(j *Job) *muster.JobSpec {
	s := muster.DefaultJobSpec()
	s.Name, s.Queue = "job", r.queues.named[j.User]
	if !r.cfg.NoLimits {
		s.TimeLimit = j.Limit
	}
	add := func(name string, count, gpus int) {
		g := muster.DefaultGroup()
		g.Name, g.Count, g.Within = name, count, r.cfg.Within
		if j.Need.GPUs > r.perNode && r.cfg.Within == "" {
			g.Prefer, g.Patience = r.cfg.Prefer, r.patience(s.TimeLimit)
		}
		g.Task.Name, g.Task.Command = name, "true"
		g.Checkpoint.Signal = "SIGUSR1" // what is preempted goes on where it was
		g.Task.Resources = resourcesOf(&j.Need, gpus)
		s.Groups = append(s.Groups, g)
	}
	if per := r.perNode; j.Need.GPUs <= per || per == 0 {
		add("job", 1, j.Need.GPUs)
	} else {
		add("job", j.Need.GPUs/per, per)
		if rest := j.Need.GPUs % per; rest > 0 {
			add("rest", 1, rest)
		}
	}
	s.FillDefaults()
	return &s
}

// patience is how long a gang waits for the domain that it would like: a part of its limit. Where it may be stopped for others
// it comes to run again and again, and waits less.
func (r *replay) patience(limit time.Duration) time.Duration {
	if r.cfg.Prefer == "" {
		return 0
	}
	policy := r.snap.Policy()
	if policy.Order == muster.OrderShortest && policy.Preemption == muster.PreemptShortest {
		return max(time.Hour, limit/5)
	}
	return max(time.Hour, limit/2)
}

// resourcesOf is what a rank with so many of the job's GPUs needs.
func resourcesOf(n *Need, gpus int) muster.Resources {
	r := muster.Resources{GPUs: gpus, MilliCores: n.MilliCores, Memory: n.Memory, Models: n.Models}
	if gpus == 1 && n.Milli < 1000 {
		r.Share = muster.MilliGPUs(n.Milli)
	}
	if gpus < n.GPUs {
		r.MilliCores = n.MilliCores * muster.MilliCores(gpus) / muster.MilliCores(n.GPUs)
		r.Memory = n.Memory / muster.Bytes(n.GPUs) * muster.Bytes(gpus)
	}
	return r
}

func (r *replay) allocText(live []*muster.Allocation) string {
	var b strings.Builder
	var node muster.NodeID
	for _, a := range live {
		sep := "-"
		if a.Node != node {
			if node != 0 {
				b.WriteByte(';')
			}
			n, _ := r.snap.Node(a.Node)
			b.WriteString(n.Name)
			sep, node = ":", a.Node
			if a.Slots == 0 {
				b.WriteByte(':')
			}
		}
		for _, slot := range a.Slots.Slots() {
			fmt.Fprintf(&b, "%s%d", sep, slot)
			sep = "-"
		}
	}
	return b.String()
}

// stuck says why jobs wait when nothing will ever happen again.
func (r *replay) stuck() error {
	waiting, first := 0, -1
	for i := range r.runs {
		if !r.runs[i].ended && r.runs[i].number == 0 {
			if waiting++; first < 0 {
				first = i
			}
		}
	}
	why := ""
	if e, ok := r.view.Explain(r.runs[first].id, scheduler.Signals{}, r.time()); ok {
		why = ": " + strings.Join(strings.Fields(e.Headline+" "+e.Note), " ")
	}
	return fmt.Errorf("%d jobs wait for ever; the first is %s%s", waiting, r.cfg.Jobs[first].ID, why)
}

// ending is when a job's attempt is done, if it is left alone until then.
type ending struct {
	at     time.Duration
	job    int
	number uint32
}

type endHeap []ending

func (h endHeap) Len() int { return len(h) }
func (h endHeap) Less(i, k int) bool {
	return h[i].at < h[k].at || h[i].at == h[k].at && h[i].job < h[k].job
}
func (h endHeap) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *endHeap) Push(e any)   { *h = append(*h, e.(ending)) }
func (h *endHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

// dropStale forgets the ends of attempts that were stopped before.
func (r *replay) dropStale() {
	for len(r.ends) > 0 && r.runs[r.ends[0].job].number != r.ends[0].number {
		heap.Pop(&r.ends)
	}
}
