package worker

import (
	"context"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
)

// adopt puts together what the journal, the supervisor and the exits on disk know, when an agent begins. An intent that
// neither has heard of is an ended attempt: its process may have run, so it is never started again.
func (a *Agent) adopt(h history, statuses, exits []exec.Status) {
	for _, s := range exits {
		a.take(s, false)
	}
	for _, s := range statuses {
		a.take(s, true)
	}
	for id, i := range h.Intents {
		t := a.tasks[id]
		switch {
		case t == nil && i.Boot != a.id.Boot:
			a.tasks[id] = lostTask(id, "the machine of node "+a.cfg.Name+" was started again")
		case t == nil:
			a.tasks[id] = lostTask(id, "its process went with the agent and the supervisor of node "+a.cfg.Name)
		case t.phase < muster.AllocRunning:
			t.intent, t.forked = true, true
			t.own = muster.Stop{Mode: muster.StopKill, Class: muster.ClassNode,
				Reason: "the agent of node " + a.cfg.Name + " died while it was started"}
		default:
			t.intent, t.forked = true, true
		}
	}
	for id, end := range h.Ended { // this may have been reported: it stays the answer
		supervised := a.tasks[id] != nil && a.tasks[id].supervised
		a.tasks[id] = &task{id: id, phase: muster.AllocEnded, end: end, supervised: supervised}
	}
	for _, id := range sortedIDs(a.tasks) {
		a.log.Info("found", "allocation", id.String(), "phase", a.tasks[id].phase)
		if a.tasks[id].phase == muster.AllocEnded {
			a.logEnd(a.tasks[id]) // the agent before may have died before it did
		}
	}
}

func lostTask(id muster.AllocID, message string) *task {
	return &task{id: id, phase: muster.AllocEnded, intent: true, forked: true, end: muster.AllocReport{
		ID: id, Phase: muster.AllocEnded, Ended: muster.TimeOf(time.Now()), Class: muster.ClassNode, Message: message,
	}}
}

// take makes a task of what a supervisor, living or dead, knows.
func (a *Agent) take(s exec.Status, supervised bool) {
	t := &task{id: s.Alloc, phase: max(s.Phase, muster.AllocReady), supervised: supervised, end: endOf(s)}
	t.forked = s.Pid != 0 || s.Phase >= muster.AllocRunning
	a.tasks[s.Alloc], a.ordered = t, nil
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

// watch carries a supervisor's events to the loop, until it is gone.
func (a *Agent) watch(ctx context.Context, s Supervisor) {
	a.work.Go(func() {
		for status := range s.Events() {
			a.post(ctx, func() { a.status(ctx, status) })
		}
		a.post(ctx, func() { a.supervisorLost(ctx, s) })
	})
}

// status takes in what the supervisor says of a task. Phases only go forward.
func (a *Agent) status(ctx context.Context, s exec.Status) {
	t := a.tasks[s.Alloc]
	if t == nil {
		return // forgotten
	}
	switch {
	case s.Phase == muster.AllocEnded:
		a.ended(ctx, t, endOf(s))
	case s.Phase > t.phase:
		if t.phase < muster.AllocRunning && s.Phase >= muster.AllocRunning {
			a.log.Info("started", "allocation", t.id.String(), "pid", s.Pid, "at", int64(a.host.now()))
		}
		a.reach(t, s.Phase)
		t.end = endOf(s)
	}
}

// reach brings a task forward to a phase. That it is ready is logged before anybody is told, and a gang may start.
func (a *Agent) reach(t *task, phase muster.AllocPhase) {
	if t.phase < muster.AllocReady && phase == muster.AllocReady {
		a.log.Info("ready", "allocation", t.id.String(), "at", int64(a.host.now()))
	}
	t.phase = max(t.phase, phase)
}

// supervisorLost connects to the supervisor again, or to a new one when it has died, and ends what that does not know any
// more. Nothing is said to have ended before what is left of a dead one's tasks was killed; those whose end it still wrote
// down ended as it says. Meanwhile nobody could end its tasks, so no renewal names them.
func (a *Agent) supervisorLost(ctx context.Context, s Supervisor) {
	a.log.Error("the connection to the supervisor is lost")
	a.supervisor = nil
	var supervised []muster.AllocID
	for id, t := range a.tasks {
		if t.supervised && t.phase != muster.AllocEnded {
			supervised = append(supervised, id)
		}
	}
	seen := a.seen
	a.work.Go(func() {
		_ = s.Close() // its connection is broken
		next, statuses := a.superviseAgain(ctx)
		if next == nil {
			return
		}
		known := map[muster.AllocID]bool{}
		for _, status := range statuses {
			known[status.Alloc] = true
		}
		ends := map[muster.AllocID]muster.AllocReport{}
		for _, exit := range a.host.exits() {
			ends[exit.Alloc] = endOf(exit)
		}
		var orphans []muster.AllocID
		var records []*wire.JournalRecord
		for _, id := range supervised {
			if known[id] {
				continue
			}
			orphans = append(orphans, id)
			if _, ok := ends[id]; !ok {
				ends[id] = muster.AllocReport{ID: id, Phase: muster.AllocEnded, Ended: muster.TimeOf(time.Now()),
					Class: muster.ClassNode, Message: "its supervisor on node " + a.cfg.Name + " died"}
				records = append(records, endedRecord(seen, ends[id]))
			}
		}
		if a.writeJournal(records...) != nil || !a.post(ctx, func() {
			for _, t := range a.tasks {
				t.supervised = t.supervised && known[t.id]
			}
			for _, id := range orphans {
				if t := a.tasks[id]; t != nil {
					a.ended(ctx, t, ends[id])
				}
			}
			for _, status := range statuses {
				a.status(ctx, status)
			}
			a.supervisor = next
			a.watch(ctx, next)
			a.renewAll(ctx)
		}) {
			_ = next.Close() // the agent is ending; it goes on without us
		}
	})
}

// superviseAgain tries until a supervisor says what it knows; nil: ctx ended first.
func (a *Agent) superviseAgain(ctx context.Context) (Supervisor, []exec.Status) {
	for {
		s, err := a.host.supervise(ctx)
		if err == nil {
			var statuses []exec.Status
			err = within(ctx, listWithin, func(ctx context.Context) (err error) {
				statuses, err = s.List(ctx)
				return err
			})
			if err == nil {
				return s, statuses
			}
			_ = s.Close() // it is tried again
		}
		a.log.Error("no supervisor: trying on", "error", err)
		again := time.NewTimer(retryAfter)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil, nil
		case <-again.C:
		}
	}
}
