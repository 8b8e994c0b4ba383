package step

import (
	"fmt"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
)

// welcomeWithin is how long a server may take to register this node: an election and a few commits.
const welcomeWithin = 10 * time.Second

// lookAtSession leaves a server that is silent, and renews.
func (m *Machine) lookAtSession(now time.Time) {
	s, limit := m.session, Patience(m.shortestLease())
	if !s.welcome && now.Sub(s.opened) > welcomeWithin {
		m.hands.HangUp(fmt.Errorf("no welcome within %s", muster.FormatDuration(welcomeWithin)))
	} else if at := m.leases.oldest(); at != 0 && m.hands.Boot().Sub(at) > limit {
		m.hands.HangUp(fmt.Errorf("no answer to a renewal within %s", muster.FormatDuration(limit)))
	} else if s.welcome && now.Sub(m.renewed) >= renewEvery(m.shortestLease()) {
		m.renewAll()
	} else if s.welcome {
		m.renewUnleased(now)
	}
}

// shortestLease is of what lives here; 0 = nothing does.
func (m *Machine) shortestLease() time.Duration {
	var shortest time.Duration
	for _, t := range m.tasks {
		if l := t.lease(); l > 0 && t.phase != muster.AllocEnded && (shortest == 0 || l < shortest) {
			shortest = l
		}
	}
	return shortest
}

// renewAll renews what lives: first the supervisor is asked what does, so that nobody extends the lease of a task whose
// supervisor could not end it.
func (m *Machine) renewAll() {
	if m.asking {
		return
	}
	m.renewed = m.hands.Wall()
	ends := map[muster.AllocID]exec.BootTime{}
	var ids []muster.AllocID
	for _, t := range m.inOrder() {
		switch {
		case t.phase == muster.AllocEnded || t.gone:
		case t.supervised:
			ends[t.id] = m.leases.ends[t.id]
		default:
			ids = append(ids, t.id)
		}
	}
	if len(ends) == 0 || !m.supervisor {
		m.renew(ids, m.hands.Gauges())
		return
	}
	m.asking, m.beside = true, ids
	m.hands.Living(ends)
}

// Lived tells which of the tasks that Living named live; the error: that the supervisor did not say.
func (m *Machine) Lived(alive []muster.AllocID, problem error) {
	m.asking = false
	if problem != nil {
		m.hands.Warn("the supervisor does not say what lives: no lease of its tasks is renewed", "error", problem)
	}
	ids := append(m.beside, alive...)
	m.beside = nil
	m.renew(ids, m.hands.Gauges())
}

// renewUnleased asks again for what waits for its first lease: a renewal on its way to a leader that died gets no answer.
func (m *Machine) renewUnleased(now time.Time) {
	var ids []muster.AllocID
	for _, t := range m.inOrder() {
		_, leased := m.leases.ends[t.id]
		if t.assignment != nil && !t.gone && !leased && t.phase < muster.AllocRunning && now.Sub(t.named) >= Heartbeat {
			ids = append(ids, t.id)
		}
	}
	if len(ids) > 0 {
		m.renew(ids, nil)
	}
}

// renew asks for the leases of ids; none: it only says that this node is there.
func (m *Machine) renew(ids []muster.AllocID, gauges *wire.Gauges) {
	if m.session == nil || !m.session.welcome {
		return
	}
	seq := m.leases.send(m.hands.Boot(), ids)
	now := m.hands.Wall()
	for _, id := range ids {
		if t := m.tasks[id]; t != nil {
			t.named = now
		}
	}
	m.hands.Send(&wire.FromWorker{Message: &wire.FromWorker_Renew{Renew: &wire.Renew{
		Seq: seq, Allocs: wire.AllocIDsOf(ids), Gauges: gauges,
	}}})
}

func (m *Machine) receiveRenewed(seq uint64) {
	moved := m.leases.answered(seq, func(id muster.AllocID) time.Duration {
		if t := m.tasks[id]; t != nil {
			return t.lease()
		}
		return 0
	})
	ends := map[muster.AllocID]exec.BootTime{}
	for _, id := range moved {
		if t := m.tasks[id]; t.supervised && t.phase != muster.AllocEnded {
			ends[id] = m.leases.ends[id]
		}
	}
	if len(ends) > 0 && m.supervisor {
		m.hands.Extend(ends)
	}
}
