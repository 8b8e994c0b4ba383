package step

import (
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
)

// adopt puts together what the journal, the supervisor and the exits on disk know, when an agent begins. An intent that
// neither has heard of is an ended attempt: its process may have run, so it is never started again.
func (m *Machine) adopt(h History, statuses, exits []exec.Status) {
	for _, s := range exits {
		m.take(s, false)
	}
	for _, s := range statuses {
		m.take(s, true)
	}
	for id, i := range h.Intents {
		t := m.tasks[id]
		switch {
		case t == nil && i.Boot != m.self.Boot:
			m.tasks[id] = m.lostTask(id, "the machine of node "+m.self.Node+" was started again")
		case t == nil:
			m.tasks[id] = m.lostTask(id, "its process went with the agent and the supervisor of node "+m.self.Node)
		case t.phase < muster.AllocRunning:
			t.intent, t.forked = true, true
			t.own = muster.Stop{Mode: muster.StopKill, Class: muster.ClassNode,
				Reason: "the agent of node " + m.self.Node + " died while it was started"}
		default:
			t.intent, t.forked = true, true
		}
	}
	for id, end := range h.Ended { // this may have been reported: it stays the answer
		supervised := m.tasks[id] != nil && m.tasks[id].supervised
		m.tasks[id] = &task{id: id, phase: muster.AllocEnded, end: end, supervised: supervised}
	}
	m.ordered = nil
	for _, t := range m.inOrder() {
		m.hands.Found(t.id, t.phase)
		if t.phase == muster.AllocEnded {
			m.hands.Ended(t.end, true) // the agent before may have died before it did
		}
	}
}

func (m *Machine) lostTask(id muster.AllocID, message string) *task {
	return &task{id: id, phase: muster.AllocEnded, intent: true, forked: true, end: muster.AllocReport{
		ID: id, Phase: muster.AllocEnded, Ended: muster.TimeOf(m.hands.Wall()), Class: muster.ClassNode, Message: message,
	}}
}

// take makes a task of what a supervisor, living or dead, knows.
func (m *Machine) take(s exec.Status, supervised bool) {
	t := &task{id: s.Alloc, phase: max(s.Phase, muster.AllocReady), supervised: supervised, end: endOf(s)}
	t.forked = s.Pid != 0 || s.Phase >= muster.AllocRunning
	m.tasks[s.Alloc], m.ordered = t, nil
}

// endOf is what a status says of an allocation's end, as far as it has come.
func endOf(s exec.Status) muster.AllocReport {
	r := muster.AllocReport{
		ID: s.Alloc, Phase: s.Phase, Class: s.Class, ExitCode: s.ExitCode, Signal: s.Signal, Message: s.Message, Peak: s.Peak,
	}
	if !s.Running.IsZero() {
		r.Running = muster.TimeOf(s.Running)
	}
	if !s.Ended.IsZero() {
		r.Ended = muster.TimeOf(s.Ended)
	}
	return r
}

// Status takes in what the supervisor says of a task. Phases only go forward.
func (m *Machine) Status(s exec.Status) {
	t := m.tasks[s.Alloc]
	if t == nil {
		return // forgotten
	}
	switch {
	case s.Phase == muster.AllocEnded:
		m.ended(t, endOf(s))
	case s.Phase > t.phase:
		if t.phase < muster.AllocRunning && s.Phase >= muster.AllocRunning {
			m.hands.Running(t.id, s.Pid)
		}
		m.reach(t, s.Phase)
		t.end = endOf(s)
	}
}

// reach brings a task forward to a phase. That it is ready is logged before anybody is told, and a gang may start.
func (m *Machine) reach(t *task, phase muster.AllocPhase) {
	if t.phase < muster.AllocReady && phase == muster.AllocReady {
		m.hands.Ready(t.id)
	}
	t.phase = max(t.phase, phase)
}

// SupervisorLost tells that the connection to the supervisor broke. Meanwhile nobody could end its tasks, so no renewal names
// them.
func (m *Machine) SupervisorLost() {
	m.supervisor = false
	l := Loss{node: m.self.Node, seen: m.seen}
	for _, t := range m.inOrder() {
		if t.supervised && t.phase != muster.AllocEnded {
			l.supervised = append(l.supervised, t.id)
		}
	}
	m.hands.Supervise(l)
}

// Loss is what a supervisor was running when the connection to it broke.
type Loss struct {
	node       string
	seen       muster.Version
	supervised []muster.AllocID
}

// Aftermath is what the supervisor, or the one after it, says after a loss.
type Aftermath struct {
	statuses []exec.Status
	orphans  []muster.AllocReport
}

// Settle says what became of the tasks: statuses is what the supervisor knows that there is now, exits the ends on disk. What it
// does not know any more has ended, as the disk says or, with records that must be on the disk before anyone hears of it,
// with the supervisor.
func (l *Loss) Settle(statuses, exits []exec.Status, now time.Time) (Aftermath, []*wire.JournalRecord) {
	found := Aftermath{statuses: statuses}
	known := map[muster.AllocID]bool{}
	for _, s := range statuses {
		known[s.Alloc] = true
	}
	ends := map[muster.AllocID]muster.AllocReport{}
	for _, exit := range exits {
		ends[exit.Alloc] = endOf(exit)
	}
	var records []*wire.JournalRecord
	for _, id := range l.supervised {
		if known[id] {
			continue
		}
		end, written := ends[id]
		if !written {
			end = muster.AllocReport{ID: id, Phase: muster.AllocEnded, Ended: muster.TimeOf(now),
				Class: muster.ClassNode, Message: "its supervisor on node " + l.node + " died"}
			records = append(records, EndedRecord(l.seen, end))
		}
		found.orphans = append(found.orphans, end)
	}
	return found, records
}

// Regained tells that a supervisor is connected. What was left of a dead one's tasks has been killed.
func (m *Machine) Regained(f Aftermath) {
	known := map[muster.AllocID]bool{}
	for _, s := range f.statuses {
		known[s.Alloc] = true
	}
	for _, t := range m.tasks {
		t.supervised = t.supervised && known[t.id]
	}
	for _, end := range f.orphans {
		if t := m.tasks[end.ID]; t != nil {
			m.ended(t, end)
		}
	}
	for _, s := range f.statuses {
		m.Status(s)
	}
	m.supervisor = true
	m.renewAll()
}
