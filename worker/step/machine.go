package step

import (
	"iter"
	"slices"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
)

// Machine decides for one agent. It is told what happened, one thing after the other, and what follows it asks of its Hands.
// After whatever it is told Turn must be called: that works out the next action of each allocation, and what is news.
type Machine struct {
	self  Self
	hands Hands

	tasks      map[muster.AllocID]*task
	ordered    []*task // tasks by number; nil: one came or went since
	seen       muster.Version
	supervisor bool     // one is connected; false: one is being started
	session    *Session // nil: none
	leases     leases
	flying     *flight   // the report that is not acknowledged yet; nil: none
	reports    uint64    // sequence number of the newest report
	renewed    time.Time // when all that lives was last renewed
	asking     bool      // the supervisor is being asked which tasks live
	beside     []muster.AllocID
}

// Self is who the agent is.
type Self struct {
	Node    string // its name
	Boot    string // boot id of the machine
	Refuses string // not "": why this agent runs no task at all
}

// Hands do what a Machine decides. None of the calls waits; what takes time tells the machine when it is done, as each says.
// Should a record not get onto the disk, nothing is told any more: the agent ends.
type Hands interface {
	Boot() exec.BootTime // now
	Wall() time.Time     // now

	// Send puts a message on the newest session's stream. HangUp ends that, with the reason; SessionClosed follows.
	Send(*wire.FromWorker)
	HangUp(reason error)
	Gauges() *wire.Gauges

	// Prepare sets a task up, with its first lease's end, and puts records on the disk: then Prepared.
	Prepare(a *Assignment, end exec.BootTime, records []*wire.JournalRecord)
	// Start puts records on the disk, and when they are there starts the process: then Started.
	Start(a *Assignment, records []*wire.JournalRecord)
	// Stop asks the supervisor to stop a task: then Stopped.
	Stop(id muster.AllocID, stop muster.Stop)
	// End puts the end of what never ran on the disk: then EndWritten.
	End(end muster.AllocReport, record *wire.JournalRecord)
	// Forget puts a record on the disk, then has the exit forgotten, by the supervisor when that knows it: then Forgotten.
	Forget(id muster.AllocID, supervised bool, record *wire.JournalRecord)
	// Extend tells the supervisor of ends of leases.
	Extend(ends map[muster.AllocID]exec.BootTime)
	// Living does the same and asks which of the tasks live: then Lived.
	Living(ends map[muster.AllocID]exec.BootTime)
	// Kill ends the processes of a task past its silent supervisor: then Killed.
	Kill(id muster.AllocID)
	// Supervise connects to the supervisor again, or to a new one when it has died. Once what is left of a dead one's tasks was
	// killed, it has l say what became of them, puts those records on the disk, and calls Regained.
	Supervise(l Loss)

	// What people are told.
	Found(id muster.AllocID, phase muster.AllocPhase)
	Ready(id muster.AllocID)
	Running(id muster.AllocID, pid int)
	Ended(end muster.AllocReport, again bool) // again: an agent before this one may have told it
	Warn(message string, args ...any)
}

// Disowned is the reason of a stop that nobody asked for: the allocation is gone for the servers.
const Disowned = "the servers do not know it any more"

// retryAfter is when what failed is tried again.
const retryAfter = time.Second

// Heartbeat is how often LookAtClocks is to be called: renewals, silent servers and supervisors, retries.
const Heartbeat = 250 * time.Millisecond

// New makes the machine of an agent that begins: history is what its journal says, statuses what its supervisor, exits the ends
// on disk that nobody has forgotten.
func New(self Self, hands Hands, h History, statuses, exits []exec.Status) *Machine {
	m := &Machine{self: self, hands: hands, tasks: map[muster.AllocID]*task{}, seen: h.Seen, supervisor: true, leases: newLeases()}
	m.adopt(h, statuses, exits)
	return m
}

// Seen is the newest view that was seen.
func (m *Machine) Seen() muster.Version { return m.seen }

// Known is one allocation that the machine knows.
type Known struct {
	ID         muster.AllocID
	Assignment *Assignment // nil: no view has named it yet
	Phase      muster.AllocPhase
}

// All yields what is known, by number.
func (m *Machine) All() iter.Seq[Known] {
	return func(yield func(Known) bool) {
		for _, t := range m.inOrder() {
			if !yield(Known{t.id, t.assignment, t.phase}) {
				return
			}
		}
	}
}

// Len is the number of allocations known.
func (m *Machine) Len() int { return len(m.tasks) }

// Knows says whether an allocation is known.
func (m *Machine) Knows(id muster.AllocID) bool { return m.tasks[id] != nil }

// Turn does what follows from what is known now: the next action of each allocation, and the next report.
func (m *Machine) Turn() {
	now := m.hands.Boot()
	for _, t := range m.inOrder() {
		m.perform(t, step(t.desired(), t.observed(&m.leases, now)))
	}
	m.sendReports()
}

// inOrder gives the tasks in the order of their numbers.
func (m *Machine) inOrder() []*task {
	if m.ordered == nil {
		m.ordered = make([]*task, 0, len(m.tasks))
		for _, t := range m.tasks {
			m.ordered = append(m.ordered, t)
		}
		slices.SortFunc(m.ordered, func(x, y *task) int { return compareIDs(x.id, y.id) })
	}
	return m.ordered
}

// perform begins an action.
func (m *Machine) perform(t *task, what action) {
	switch what {
	case doNothing:
	case doEnd:
		stop := t.desired().Stop
		m.endUnstarted(t, stop.Class, stop.Reason)
	case doForget:
		m.forget(t)
	default:
		if !m.supervisor {
			return // one is being started
		}
		switch what {
		case doPrepare:
			m.prepare(t)
		case doStart:
			m.start(t)
		case doStop:
			m.stop(t, t.desired().Stop)
		case doKill:
			m.stop(t, muster.Stop{Mode: muster.StopKill, Class: muster.ClassNode, Reason: Disowned})
		}
	}
}

// prepare sets a task up. When it may start at once, that intent goes to the disk meanwhile.
func (m *Machine) prepare(t *task) {
	if t.broken != "" {
		m.endUnstarted(t, muster.ClassPrepare, "node "+m.self.Node+" does not understand it: "+t.broken)
		return
	}
	if m.self.Refuses != "" {
		m.endUnstarted(t, muster.ClassPrepare, m.self.Refuses)
		return
	}
	t.busy, t.phase = true, muster.AllocPreparing
	end := m.leases.first(t.id, t.lease(), m.hands.Boot())
	var intents []*wire.JournalRecord
	if t.assignment.Alloc.Go {
		intents = append(intents, m.intentRecord(t))
		t.intending = true
	}
	m.hands.Prepare(t.assignment, end, intents)
}

// Prepared tells that a task is set up, or why it can't be.
func (m *Machine) Prepared(id muster.AllocID, problem string) {
	t := m.tasks[id]
	if t == nil {
		return
	}
	t.busy, t.intent, t.intending = false, t.intending, false
	t.supervised = true // or it may be, when that failed: forgetting asks the supervisor
	if problem != "" {
		m.endUnstarted(t, muster.ClassPrepare, problem)
		return
	}
	m.reach(t, muster.AllocReady)
}

func (m *Machine) intentRecord(t *task) *wire.JournalRecord {
	return IntentRecord(m.seen, t.id, Intent{Boot: m.self.Boot, Time: muster.TimeOf(m.hands.Wall())})
}

// start lets a prepared task's process begin, once. The intent is on the disk before: should the agent die now, the next one
// knows that it may have been started, and never starts it again.
func (m *Machine) start(t *task) {
	t.busy, t.forked = true, true
	var records []*wire.JournalRecord
	if !t.intent {
		records = append(records, m.intentRecord(t))
	}
	m.hands.Start(t.assignment, records)
}

// Started tells that the supervisor took the order to start a task, or why it did not say so.
func (m *Machine) Started(id muster.AllocID, problem error) {
	t := m.tasks[id]
	if t == nil {
		return
	}
	t.busy, t.intent = false, true
	if problem != nil && t.phase < muster.AllocRunning { // it may run all the same: it has to be ended
		t.own = muster.Stop{Mode: muster.StopKill, Class: muster.ClassNode,
			Reason: "node " + m.self.Node + " could not start it: " + problem.Error()}
	}
}

func (m *Machine) stop(t *task, stop muster.Stop) {
	t.busy = true
	m.hands.Stop(t.id, stop)
}

// Stopped tells that the supervisor took a stop of this mode; an error of KindNotFound: that it doesn't know the task.
func (m *Machine) Stopped(id muster.AllocID, mode muster.StopMode, problem error) {
	t := m.tasks[id]
	if t == nil {
		return
	}
	t.busy = false
	if muster.KindOf(problem) == muster.KindNotFound { // then it has no process of it either
		m.endUnstarted(t, muster.ClassNode, "the supervisor of node "+m.self.Node+" does not know it")
		return
	}
	if problem != nil {
		m.hands.Warn("the supervisor does not take a stop: trying again", "allocation", t.id, "error", problem)
		t.retryAt = m.hands.Wall().Add(retryAfter)
		return
	}
	t.asked = max(t.asked, mode)
}

// endUnstarted ends an allocation whose process was never started. The result is on the disk before anyone hears of it.
func (m *Machine) endUnstarted(t *task, class muster.Class, message string) {
	t.busy = true
	end := muster.AllocReport{
		ID: t.id, Phase: muster.AllocEnded, Ended: muster.TimeOf(m.hands.Wall()), Class: class, Message: message,
	}
	m.hands.End(end, EndedRecord(m.seen, end))
}

// EndWritten tells that an end is on the disk.
func (m *Machine) EndWritten(end muster.AllocReport) {
	if t := m.tasks[end.ID]; t != nil {
		t.busy = false
		m.ended(t, end)
	}
}

// ended takes in the end of an allocation, however it came about. The first one stays.
func (m *Machine) ended(t *task, end muster.AllocReport) {
	if t.phase == muster.AllocEnded {
		return
	}
	t.phase, t.end = muster.AllocEnded, end
	m.hands.Ended(end, false)
}

// forget removes every trace of an ended allocation but its logs and its directory. The highest view is on the disk before:
// no older one can bring it back.
func (m *Machine) forget(t *task) {
	t.busy = true
	m.hands.Forget(t.id, t.supervised && m.supervisor, ForgetRecord(m.seen, t.id))
}

// Forgotten tells that what there was of an allocation is gone.
func (m *Machine) Forgotten(id muster.AllocID) {
	delete(m.tasks, id)
	m.ordered = nil
	m.leases.drop(id)
}

// LookAtClocks does what no message brings about.
func (m *Machine) LookAtClocks() {
	now := m.hands.Wall()
	for _, t := range m.tasks {
		if !t.retryAt.IsZero() && !now.Before(t.retryAt) {
			t.retryAt = time.Time{}
		}
	}
	m.killOverdue()
	if m.session != nil {
		m.lookAtSession(now)
	}
}

// killOverdue kills what a silent supervisor should have killed for its lease.
func (m *Machine) killOverdue() {
	now := m.hands.Boot()
	for _, t := range m.inOrder() {
		if t.killing || !t.forked || t.phase == muster.AllocEnded || !m.leases.overdue(t.id, t.lease(), now) {
			continue
		}
		t.killing = true
		m.hands.Kill(t.id)
	}
}

// Killed tells that a kill past the supervisor was tried.
func (m *Machine) Killed(id muster.AllocID, problem error) {
	if problem != nil {
		m.hands.Warn("its lease is over, its supervisor is silent, and it can't be killed", "allocation", id, "error", problem)
	}
	if t := m.tasks[id]; t != nil {
		t.killing = false
	}
}
