package state

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"pgregory.net/rapid"
)

// Random commands, sensible and not: the invariants hold after every entry, replicas agree whatever they were restored from,
// what has ended stays as it is, published snapshots never change, and at rest nothing is held.
func TestRandomCommandsKeepEveryPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &chaos{T: t, a: New(), b: New(), now: 1000, ended: map[muster.AllocID]muster.Allocation{}, final: map[muster.JobID]muster.Job{}}
		for range rapid.IntRange(1, 80).Draw(t, "entries") {
			c.step()
		}
		c.rest()
	})
}

type chaos struct {
	*rapid.T
	a, b  *State
	index muster.Index
	now   muster.Time
	old   *Snapshot // some earlier one
	ended map[muster.AllocID]muster.Allocation
	final map[muster.JobID]muster.Job
}

func (c *chaos) pick(n int, label string) int { return rapid.IntRange(0, n-1).Draw(c.T, label) }

func (c *chaos) chance(percent int, label string) bool { return c.pick(100, label) < percent }

func (c *chaos) step() {
	c.now = c.now.Add([]time.Duration{0, time.Second, time.Minute, 11 * time.Minute}[c.pick(4, "wait")])
	var e Entry
	e.Stamp = c.now
	if c.chance(5, "slow clock") {
		e.Stamp -= 5000
	}
	snapshot := c.a.Snapshot()
	for range 1 + c.pick(3, "commands") {
		e.Commands = append(e.Commands, c.command(snapshot))
	}
	c.apply(e)
	if c.chance(10, "restore") {
		c.restore()
	}
}

func (c *chaos) apply(e Entry) {
	c.index += muster.Index(1 + c.pick(3, "gap")*400)
	before := c.a.Snapshot()
	if c.old == nil || c.chance(10, "keep") {
		c.old = before
	}
	ra, ca := c.a.Apply(e, c.index, term)
	rb, cb := c.b.Apply(e, c.index, term)
	if !reflect.DeepEqual(ra, rb) || !reflect.DeepEqual(ca, cb) {
		c.Fatalf("replicas answer differently:\n%+v %+v\n%+v %+v", ra, ca, rb, cb)
	}
	after := c.a.Snapshot()
	if err := after.CheckInvariants(); err != nil {
		c.Fatalf("after %s: %v", show(e), err)
	}
	if other := c.b.Snapshot(); after.Digest() != other.Digest() {
		c.Fatalf("digests %x and %x", after.Digest(), other.Digest())
	}
	if c.a.expiry.tree.Len() != after.t.requests.len() || c.b.expiry.tree.Len() != after.t.requests.len() {
		c.Fatalf("%d requests are remembered, %d and %d will be forgotten", after.t.requests.len(), c.a.expiry.tree.Len(), c.b.expiry.tree.Len())
	}
	for _, s := range []*Snapshot{before, c.old} {
		if err := s.CheckInvariants(); err != nil {
			c.Fatalf("a published snapshot changed: %v", err)
		}
	}
	c.checkLimits(e, before, after)
	c.checkFinal(after)
	c.checkChanged(before, after, ca)
}

func show(e Entry) string {
	s := ""
	for _, c := range e.Commands {
		s += fmt.Sprintf("%T%+v ", c, c)
	}
	return s
}

// checkFinal: ended allocations and jobs never change.
func (c *chaos) checkFinal(s *Snapshot) {
	for id, was := range c.ended {
		if a, ok := s.Alloc(id); ok && *a != was {
			c.Fatalf("an ended allocation changed: %+v, was %+v", *a, was)
		}
	}
	for id, was := range c.final {
		if j, ok := s.Job(id); ok && !reflect.DeepEqual(*j, was) {
			c.Fatalf("an ended job changed: %+v, was %+v", *j, was)
		}
	}
	for a := range s.t.allocs.all() {
		if a.Phase == muster.AllocEnded {
			c.ended[a.ID] = *a
		}
	}
	for j := range s.Jobs(0) {
		if j.Phase.Terminal() {
			c.final[j.ID] = *j
		}
	}
}

// checkChanged: whoever asked for a job, node or queue that changed is told.
func (c *chaos) checkChanged(before, after *Snapshot, told Changed) {
	if !slices.IsSorted(told.Jobs) || !slices.IsSorted(told.Nodes) || !slices.IsSorted(told.Queues) {
		c.Fatalf("not sorted: %+v", told)
	}
	for j := range after.Jobs(0) {
		if old, ok := before.Job(j.ID); (!ok || !reflect.DeepEqual(old, j)) && !slices.Contains(told.Jobs, j.ID) {
			c.Fatalf("job %d changed and nobody was told", j.ID)
		}
	}
	for n := range after.Nodes() {
		if old, ok := before.Node(n.ID); (!ok || !reflect.DeepEqual(old, n)) && !slices.Contains(told.Nodes, n.ID) {
			c.Fatalf("node %d changed and nobody was told", n.ID)
		}
	}
	for a := range after.t.allocs.all() {
		if old, ok := before.Alloc(a.ID); (!ok || *old != *a) && (!slices.Contains(told.Nodes, a.Node) || !slices.Contains(told.Jobs, a.Job)) {
			c.Fatalf("allocation %s changed and its node or job was not told", a.ID)
		}
	}
	for q := range after.Queues() {
		if old, ok := before.Queue(q.Name); (!ok || *old != *q) && !slices.Contains(told.Queues, q.Name) {
			c.Fatalf("queue %s changed and nobody was told", q.Name)
		}
	}
}

// restore makes the second replica anew from the first one's rows.
func (c *chaos) restore() {
	b, err := Restore(c.index, rowsOf(c.a.Snapshot()))
	if err != nil {
		c.Fatalf("restore: %v", err)
	}
	if b.Snapshot().Digest() != c.a.Snapshot().Digest() {
		c.Fatalf("restored digest differs")
	}
	c.b = b
}

func rowsOf(s *Snapshot) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for row := range s.Rows() {
			if !yield(row, nil) {
				return
			}
		}
	}
}

func (c *chaos) command(s *Snapshot) Command {
	header := Header{User: []string{"ann", "bob"}[c.pick(2, "user")]}
	if c.chance(40, "remembered") {
		header.RequestID = fmt.Sprint("r-", c.pick(6, "request"))
	}
	jobs := []muster.JobID{c.someJob(s), c.someJob(s)}
	node := muster.NodeID(1 + c.pick(4, "node"))
	name := fmt.Sprint("n", c.pick(4, "name"))
	switch c.pick(20, "kind") {
	case 0, 1, 2:
		return &Submit{Header: header, Specs: []*muster.JobSpec{c.spec(), c.spec()}[:1+c.pick(2, "specs")], Pend: c.chance(50, "pend"),
			Hold: c.chance(10, "held"), StartWithin: time.Duration(c.pick(2, "start within")) * time.Minute}
	case 3, 4, 5, 6:
		return c.plan(s)
	case 7, 8, 9, 10, 11:
		return c.reports(s)
	case 12, 13:
		return c.registration(s)
	case 14:
		return &Cancel{Header: header, Jobs: jobs[:1+c.pick(2, "jobs")], Mode: muster.StopMode(c.pick(5, "mode"))}
	case 15:
		switch c.pick(6, "which") {
		case 0:
			return &Release{Header: header, Jobs: jobs[:1]}
		case 1:
			return &Hold{Header: header, Jobs: jobs[:1]}
		case 2:
			return &SetPriority{Header: header, Jobs: jobs[:1], Priority: c.pick(3, "priority")}
		case 3:
			return &Requeue{Header: header, Jobs: jobs[:1]}
		case 4:
			return &StartDue{Term: term, Jobs: slices.Collect(s.StartDue(c.now))}
		}
		return &Wake{Term: term, Jobs: jobs}
	case 16:
		if c.chance(40, "queues") {
			return c.queues(header)
		}
		d := &DrainNodes{Header: header, Nodes: []string{name}, HasDeadline: c.chance(60, "deadline"), Deadline: time.Duration(c.pick(2, "later")) * time.Hour}
		if c.chance(30, "undrain") {
			return &UndrainNodes{Header: header, Nodes: d.Nodes}
		}
		return d
	case 17:
		if c.chance(50, "due") {
			return &DrainDue{Term: term - uint64(c.pick(2, "term")), Node: node}
		}
		switch c.pick(4, "which") {
		case 0:
			return &RemoveNodes{Header: header, Nodes: []string{name}}
		case 1:
			return &LabelNode{Header: header, Node: name, Set: []muster.Label{{Key: "rack", Value: fmt.Sprint("r", c.pick(2, "rack"))}}}
		case 2:
			return &LabelNode{Header: header, Node: name, Remove: []string{"rack"}}
		}
		return &FenceNode{Header: header, Node: name}
	case 18:
		e := &EndLeases{Term: term, Node: node, Session: fmt.Sprint("s", c.pick(2, "session")), Lost: c.chance(50, "lost"), Reason: "silent"}
		for a := range s.AllocsOnNode(node) {
			if c.chance(70, "expired") {
				e.Allocs = append(e.Allocs, a.ID)
			}
		}
		return e
	default:
		return &Purge{Term: term, Jobs: slices.Collect(s.Ended(c.now.Add(-time.Minute)))}
	}
}

func (c *chaos) someJob(s *Snapshot) muster.JobID {
	return muster.JobID(1 + c.pick(int(s.Cluster().NextJob)+1, "job"))
}

func (c *chaos) spec() *muster.JobSpec {
	spec := gang(fmt.Sprint("j", c.pick(3, "job name")), 1+c.pick(3, "ranks"), c.pick(4, "gpus"))
	spec.Priority = c.pick(2, "priority")
	g := &spec.Groups[0]
	g.Within = []string{"", "", "node", "rack"}[c.pick(4, "within")]
	g.Task.Resources.Exclusive = c.chance(10, "exclusive")
	if c.chance(30, "share") {
		g.Task.Resources.GPUs, g.Task.Resources.Share = 1, muster.MilliGPUs([]int{250, 400, 500, 700}[c.pick(4, "size")])
	}
	if c.chance(50, "retry") {
		g.Retry = muster.Retry{Attempts: 1, On: []muster.Class{muster.ClassExit, muster.ClassOOM}, Delay: time.Duration(c.pick(2, "delay")) * time.Second}
	}
	if c.chance(20, "two groups") {
		spec.Groups = append(spec.Groups, muster.Group{Name: "head", Count: 1})
	}
	spec.PriorityOfQueue = c.chance(30, "no priority")
	spec.Queue = []string{"default", "default", "research", "research/nlp", "ops"}[c.pick(5, "queue")]
	return spec
}

// queues makes a tree with limits that bite, and constraints that some nodes meet.
func (c *chaos) queues(header Header) *ApplyQueues {
	a := &ApplyQueues{Header: header, Policy: muster.DefaultPolicy()}
	for _, name := range []string{"default", "research", "research/nlp"} {
		if c.chance(15, "without") {
			continue
		}
		q := muster.NewQueueSpec(name)
		q.MaxGPUs, q.UserGPUs = 2*c.pick(3, "max_gpus"), 2*c.pick(3, "user_gpus")
		q.MaxRunning, q.MaxPending = c.pick(4, "max_running"), 4*c.pick(2, "max_pending")
		q.Defaults.TimeLimit = time.Duration(c.pick(2, "time limit")) * time.Hour
		if c.chance(20, "cap") {
			q.Caps.HasPriority = true
		}
		if c.chance(20, "allow") {
			q.Allow = []string{"ann"}
		}
		if c.chance(30, "constraint") {
			q.Constraints = []muster.Constraint{{Attribute: "label.rack", Operator: muster.OpEqual, Value: fmt.Sprint("r", c.pick(2, "rack"))}}
		}
		a.Queues = append(a.Queues, q)
	}
	return a
}

// checkLimits: nothing starts beyond a limit of its queue or of one above it. What is beyond one that was lowered only shrinks.
func (c *chaos) checkLimits(e Entry, before, after *Snapshot) {
	if slices.ContainsFunc(e.Commands, func(c Command) bool { _, is := c.(*ApplyQueues); return is }) {
		return
	}
	held := func(s *Snapshot, queue, user string) (gpus muster.MilliGPUs, running int) {
		jobs := map[muster.JobID]bool{}
		for a := range s.t.allocs.all() {
			j, _ := s.Job(a.Job)
			if a.Phase != muster.AllocEnded && (j.Queue == queue || muster.ParentQueue(j.Queue) == queue) && (user == "" || j.User == user) {
				gpus += a.MilliGPUs()
				jobs[j.ID] = true
			}
		}
		return gpus, len(jobs)
	}
	for q := range after.Queues() {
		check := func(what string, limit int, was, is int64) {
			if limit > 0 && is > int64(limit) && is > was {
				c.Fatalf("queue %s: %s rose from %d to %d, over %d", q.Name, what, was, is, limit)
			}
		}
		oldGPUs, oldRunning := held(before, q.Name, "")
		gpus, running := held(after, q.Name, "")
		check("GPUs", 1000*q.Rules().MaxGPUs, int64(oldGPUs), int64(gpus))
		check("running jobs", q.Rules().MaxRunning, int64(oldRunning), int64(running))
		for _, user := range []string{"ann", "bob"} {
			was, _ := held(before, q.Name, user)
			is, _ := held(after, q.Name, user)
			check("GPUs of "+user, 1000*q.Rules().UserGPUs, int64(was), int64(is))
		}
	}
}

// plan places pending jobs where they seem to fit, and sometimes where they do not.
func (c *chaos) plan(s *Snapshot) *CommitPlan {
	plan := &CommitPlan{Term: term}
	nodes := slices.Collect(s.Nodes())
	for k := range s.Pending() {
		if len(nodes) == 0 || len(plan.Gangs) == 4 {
			break
		}
		j, _ := s.Job(k.Job)
		g := GangPlacement{Job: j.ID, Attempt: j.Attempt + 1}
		taken := map[muster.NodeID]muster.SlotSet{}
		spec := s.Spec(j.Spec)
		for group := range spec.Groups {
			need := &spec.Groups[group].Task.Resources
			n := nodes[c.pick(len(nodes), "start")]
			for rank := range spec.Groups[group].Count {
				if spec.Groups[group].Within == "" {
					n = nodes[c.pick(len(nodes), "on")]
				}
				slots := n.FreeSlots.Minus(taken[n.ID]).Lowest(need.GPUs)
				if need.Share > 0 && len(n.GPUs) > 0 {
					slots = muster.SlotSet(0).With(c.pick(len(n.GPUs), "slot"))
				}
				if c.chance(3, "wild") {
					slots = muster.SlotSet(c.pick(16, "slots"))
				}
				taken[n.ID] |= slots
				cores, memory := n.Share(need)
				g.Ranks = append(g.Ranks, RankPlacement{Group: group, Rank: rank, Node: n.ID, Slots: slots, Share: need.Share, MilliCores: cores, Memory: memory})
			}
		}
		plan.Gangs = append(plan.Gangs, g)
	}
	return plan
}

func (c *chaos) someReport(id muster.AllocID) muster.AllocReport {
	return muster.AllocReport{
		ID: id, Phase: muster.AllocPhase(c.pick(8, "phase")), Class: muster.Class(c.pick(12, "class")) * muster.Class(c.pick(2, "failed")),
		ExitCode: c.pick(2, "code"), Signal: c.pick(2, "signal") * 9, Running: muster.Time(c.pick(2, "running")) * c.now,
	}
}

func (c *chaos) reports(s *Snapshot) *ReportAllocs {
	r := &ReportAllocs{Node: muster.NodeID(1 + c.pick(4, "node"))}
	for a := range s.AllocsOnNode(r.Node) {
		if c.chance(70, "reported") {
			r.Allocs = append(r.Allocs, c.someReport(a.ID))
		}
	}
	r.Allocs = append(r.Allocs, c.someReport(muster.AllocID{Epoch: 1, Counter: uint64(c.pick(30, "any"))}))
	return r
}

func (c *chaos) registration(s *Snapshot) *RegisterNode {
	at := c.pick(4, "machine")
	n := machine(fmt.Sprint("n", at), at+c.pick(2, "more GPUs"))
	n.Session, n.Boot = fmt.Sprint("s", c.pick(2, "session")), fmt.Sprint("b", c.pick(2, "boot"))
	n.Labels = []muster.Label{{Key: "rack", Value: fmt.Sprint("r", at/2)}}
	if c.chance(10, "hardware") {
		n.Hardware = "other"
	}
	if c.chance(10, "instance") {
		n.Instance = "other"
	}
	for i := range n.GPUs {
		n.GPUs[i].Health = muster.GPUHealth(1 + c.pick(3, "health"))
		if c.chance(5, "moved") {
			n.GPUs[i].UUID = "GPU-n3-0"
		}
	}
	r := &RegisterNode{Node: n, Seen: s.Version()}
	r.Seen.Index -= min(r.Seen.Index, muster.Index(c.pick(3, "behind")*500))
	if known, ok := s.NodeNamed(n.Name); ok {
		for a := range s.AllocsOnNode(known.ID) {
			if c.chance(80, "listed") {
				r.Allocs = append(r.Allocs, c.someReport(a.ID))
			}
		}
	}
	if c.chance(10, "stranger") {
		r.Allocs = append(r.Allocs, c.someReport(muster.AllocID{Epoch: 1, Counter: uint64(c.pick(30, "any"))}))
	}
	return r
}

// rest ends everything: all counters are zero then.
func (c *chaos) rest() {
	s := c.a.Snapshot()
	cancel := &Cancel{Mode: muster.StopKill}
	for j := range s.Jobs(0) {
		cancel.Jobs = append(cancel.Jobs, j.ID)
	}
	e := Entry{Stamp: c.now, Commands: []Command{cancel}}
	for n := range s.Nodes() {
		r := &ReportAllocs{Node: n.ID}
		for a := range s.AllocsOnNode(n.ID) {
			r.Allocs = append(r.Allocs, muster.AllocReport{ID: a.ID, Phase: muster.AllocEnded})
		}
		e.Commands = append(e.Commands, r)
	}
	c.apply(e)
	s = c.a.Snapshot()
	for j := range s.Jobs(0) {
		if !j.Phase.Terminal() {
			c.Fatalf("job %d is %s", j.ID, j.Phase)
		}
	}
	for n := range s.Nodes() {
		if n.FreeSlots != n.UsableSlots() || n.FreeMilliCores != n.MilliCores || n.FreeMemory != n.Memory || n.Allocs != 0 {
			c.Fatalf("node %s is not free: %+v", n.Name, n)
		}
	}
	for q := range s.Queues() {
		if q.Pending != 0 || q.Running != 0 || q.GPUs != 0 {
			c.Fatalf("queue %+v", q)
		}
	}
	if s.t.shapes.len() != 0 || s.t.pending.tree.Len() != 0 || s.t.backingOff.tree.Len() != 0 || s.t.nodeAllocs.tree.Len() != 0 {
		c.Fatalf("something is left")
	}
}
