package step

import (
	"errors"
	"fmt"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// Session is one stream to one server. There is one at a time: the newest that was opened, until it is closed.
type Session struct {
	opened  time.Time
	welcome bool
	hello   map[muster.AllocID]muster.AllocPhase // what the hello said
}

// Welcomed says whether the server took this node in.
func (s *Session) Welcomed() bool { return s.welcome }

// SessionOpened begins a session and says hello: what this node is, and the complete list of what it runs or has not had
// acknowledged. The node's Session is a name that no other session has.
func (m *Machine) SessionOpened(node *muster.Node) *Session {
	s := &Session{opened: m.hands.Wall(), hello: map[muster.AllocID]muster.AllocPhase{}}
	m.session = s
	reports := make([]muster.AllocReport, 0, len(m.tasks))
	for _, t := range m.inOrder() {
		r := t.report()
		s.hello[t.id] = r.Phase
		reports = append(reports, r)
	}
	m.hands.Send(&wire.FromWorker{Message: &wire.FromWorker_Hello{Hello: &wire.RegisterNode{
		Node: wire.NodeOf(node), Seen: wire.VersionOf(m.seen), Allocs: wire.AllocReportsOf(reports),
	}}})
	return s
}

// SessionClosed ends a session: nothing that it sent after this counts.
func (m *Machine) SessionClosed(s *Session) {
	if m.session != s {
		return
	}
	m.session = nil
	m.flying = nil
	m.leases.hangUp()
}

// Receive acts on one message of a session; of one that is over it counts for nothing. The error: the server doesn't keep to
// the protocol, or refuses; the session is over.
func (m *Machine) Receive(s *Session, message *wire.ToWorker) error {
	if m.session != s {
		return nil
	}
	err := m.receive(s, message)
	if err != nil {
		m.SessionClosed(s)
	}
	return err
}

func (m *Machine) receive(s *Session, message *wire.ToWorker) error {
	switch {
	case message.GetWelcome() != nil:
		return m.receiveWelcome(s, message.GetWelcome())
	case message.GetError() != nil:
		err := errors.New(message.GetError().GetMessage())
		if hint := message.GetError().GetHint(); hint != "" {
			err = fmt.Errorf("%w. %s", err, hint)
		}
		return err
	case !s.welcome:
		return errors.New("it speaks before its welcome")
	case message.GetView() != nil:
		return m.receiveView(message.GetView())
	case message.GetAck() != nil:
		m.receiveAck(message.GetAck().GetSeq())
	case message.GetRenewed() != nil:
		m.receiveRenewed(message.GetRenewed().GetSeq())
	}
	return nil
}

func (m *Machine) receiveWelcome(s *Session, w *wire.Welcome) error {
	kill, err := wire.AllocIDs(w.GetKill())
	if err != nil {
		return err
	}
	s.welcome = true
	for id, phase := range s.hello {
		if t := m.tasks[id]; t != nil {
			t.acked = max(t.acked, phase)
		}
	}
	for _, id := range kill {
		if t := m.tasks[id]; t != nil {
			m.hands.Warn("not known to the servers, or ended for them: killing it", "allocation", id)
			t.gone = true
		}
	}
	m.renewAll()
	return nil
}

// receiveView takes in what shall run here. An older view than the newest seen is never acted on: a lagging server must not
// make a worker kill a healthy task, nor start an attempt twice.
func (m *Machine) receiveView(v *wire.View) error {
	version, err := v.GetVersion().Domain()
	if err != nil {
		return err
	}
	if version.Before(m.seen) {
		return fmt.Errorf("its view %s is older than %s, which this node has seen", version, m.seen)
	}
	gone, err := wire.AllocIDs(v.GetGone())
	if err != nil {
		return err
	}
	named := map[muster.AllocID]bool{}
	var fresh []muster.AllocID
	for _, d := range v.GetDesired() {
		id, err := d.GetAlloc().GetId().Domain()
		if err != nil || id.IsZero() {
			return errors.Join(errors.New("its view has an allocation without a number"), err)
		}
		named[id] = true
		t := m.tasks[id]
		if t == nil {
			t = &task{id: id, phase: muster.AllocPlaced}
			m.tasks[id], m.ordered = t, nil
		}
		if t.assignment == nil {
			fresh = append(fresh, id)
		}
		assignment, err := AssignmentOf(d)
		switch {
		case err == nil:
			t.assignment = assignment
		case t.assignment == nil: // this program can't run it: another node's may
			t.broken = err.Error()
		default:
			m.hands.Warn("a change of an allocation is not understood", "allocation", id, "error", err)
		}
	}
	for _, id := range gone {
		if t := m.tasks[id]; t != nil {
			t.gone = true
		}
	}
	if v.GetFull() {
		for id, t := range m.tasks {
			t.gone = t.gone || !named[id]
		}
	}
	m.seen = version
	if len(fresh) > 0 {
		m.renew(fresh, nil) // before anything is prepared: the first lease is on its way meanwhile
	}
	return nil
}

// flight is a report on its way.
type flight struct {
	seq    uint64
	phases map[muster.AllocID]muster.AllocPhase
}

// sendReports sends what is news. While one report is on its way the next gathers; what a session loses, the hello of the
// next one says.
func (m *Machine) sendReports() {
	if m.session == nil || !m.session.welcome || m.flying != nil {
		return
	}
	var reports []muster.AllocReport
	phases := map[muster.AllocID]muster.AllocPhase{}
	for _, t := range m.inOrder() {
		if t.news() {
			reports = append(reports, t.report())
			phases[t.id] = t.phase
		}
	}
	if len(reports) == 0 {
		return
	}
	m.reports++
	m.flying = &flight{seq: m.reports, phases: phases}
	m.hands.Send(&wire.FromWorker{Message: &wire.FromWorker_Report{Report: &wire.Report{
		Seq: m.reports, Allocs: wire.AllocReportsOf(reports),
	}}})
}

func (m *Machine) receiveAck(seq uint64) {
	if m.flying == nil || m.flying.seq != seq {
		return
	}
	for id, phase := range m.flying.phases {
		if t := m.tasks[id]; t != nil {
			t.acked = max(t.acked, phase)
		}
	}
	m.flying = nil
}
