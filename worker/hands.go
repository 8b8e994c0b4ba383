package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
	"github.com/musterhpc/muster/worker/step"
)

// hands do what the machine decides. They belong to the loop; what takes time runs beside it and posts what came of it.
type hands struct {
	a   *Agent
	ctx context.Context // of Run
}

// What the supervisor may take for an answer.
const (
	prepareWithin = 30 * time.Second // its directory may be on a slow file system
	startWithin   = 10 * time.Second
	stopWithin    = 5 * time.Second
	extendWithin  = time.Second
	listWithin    = 5 * time.Second
	retryAfter    = time.Second
)

func (h *hands) Boot() exec.BootTime { return h.a.host.now() }

func (h *hands) Wall() time.Time { return time.Now() }

func (h *hands) Gauges() *wire.Gauges { return h.a.gauges() }

// Send never waits. A stream that takes nothing any more is given up.
func (h *hands) Send(m *wire.FromWorker) { h.a.session.send(m) }

func (h *hands) HangUp(reason error) { h.a.session.hangUp(reason) }

// facts are what a task finds here.
func (a *Agent) facts(s *step.Assignment) *Facts {
	checkpoints := orElse(a.checkpoints, filepath.Join(a.cfg.DataDir, "checkpoints"))
	return &Facts{
		Node: a.cfg.Name, IP: a.cfg.IP, GPUs: a.node.GPUs,
		User: a.account.Name, Home: a.account.Home, Shell: a.account.Shell,
		TaskDir: a.cfg.taskDir(s.Alloc.ID), Checkpoint: filepath.Join(checkpoints, s.Alloc.Job.String()),
		Deadline: deadline(s.Spec, time.Now()),
	}
}

// refusal says why an agent runs no task at all; "" when it does.
func refusal(c *Config, is account) string {
	if is.Root && !c.AllowRoot {
		return fmt.Sprintf(
			"node %s would run it as root: run the agent as another user, or set allow_root = true in its worker block", c.Name)
	}
	return ""
}

func (h *hands) Prepare(assignment *step.Assignment, end exec.BootTime, intents []*wire.JournalRecord) {
	a, id := h.a, assignment.Alloc.ID
	facts, supervisor := a.facts(assignment), a.supervisor
	a.work.Go(func() {
		written, made := make(chan error, 1), make(chan struct{})
		a.work.Go(func() { written <- a.writeJournal(intents...) })
		var problem error // once made
		a.work.Go(func() {
			defer close(made)
			if problem = a.host.portFree(assignment.Alloc.Port); problem == nil {
				problem = setUp(assignment, facts)
			}
		})
		err := within(h.ctx, prepareWithin, func(ctx context.Context) error {
			facts := *facts
			if assignment.Spread() {
				facts.Interface = masterInterface(assignment.Peers[0].IP)
			}
			var err error
			if facts.FromFiles, err = readEnvFiles(assignment.Of().Task.EnvFromFile); err != nil {
				return err
			}
			spec, err := Task(assignment, &facts, a.cfg.logDir(id))
			if err != nil {
				return err
			}
			spec.LeaseEnd = end
			if facts.makes(spec.Dir) { // the supervisor looks whether it is there
				if <-made; problem != nil {
					return problem
				}
			}
			return supervisor.Prepare(ctx, spec)
		})
		if <-made; err == nil {
			err = problem
		}
		if <-written != nil {
			return // Run is ending
		}
		said := ""
		if err != nil {
			said = a.located(err)
		}
		a.post(h.ctx, func() { a.machine.Prepared(id, said) })
	})
}

// located says an error with the node; a supervisor's own refusals name it already.
func (a *Agent) located(err error) string {
	var refused *exec.PrepareError
	if errors.As(err, &refused) {
		return refused.Message
	}
	return fmt.Sprintf("node %s: %v", a.cfg.Name, err)
}

func (h *hands) Start(assignment *step.Assignment, records []*wire.JournalRecord) {
	a, supervisor, alloc, group := h.a, h.a.supervisor, assignment.Alloc, assignment.Of().Name
	a.work.Go(func() {
		if a.writeJournal(records...) != nil {
			return
		}
		a.log.Info("starting", "allocation", alloc.ID.String(), "job", alloc.Job, "attempt", alloc.Attempt, "group", group, "rank", alloc.Rank,
			"slots", alloc.Slots, "boot", a.id.Boot, "at", int64(a.host.now()))
		began := time.Now()
		err := within(h.ctx, startWithin, func(ctx context.Context) error { return supervisor.Start(ctx, alloc.ID) })
		since(a.cfg.Metrics.starts, began)
		a.post(h.ctx, func() { a.machine.Started(alloc.ID, err) })
	})
}

func (h *hands) Stop(id muster.AllocID, stop muster.Stop) {
	a, supervisor := h.a, h.a.supervisor
	a.work.Go(func() {
		err := within(h.ctx, stopWithin, func(ctx context.Context) error { return supervisor.Stop(ctx, id, stop) })
		a.post(h.ctx, func() { a.machine.Stopped(id, stop.Mode, err) })
	})
}

func (h *hands) End(end muster.AllocReport, record *wire.JournalRecord) {
	a := h.a
	a.work.Go(func() {
		if a.writeJournal(record) == nil {
			a.post(h.ctx, func() { a.machine.EndWritten(end) })
		}
	})
}

func (h *hands) Forget(id muster.AllocID, supervised bool, record *wire.JournalRecord) {
	a, supervisor := h.a, h.a.supervisor
	ids := []muster.AllocID{id}
	a.work.Go(func() {
		if a.writeJournal(record) != nil {
			return
		}
		var err error
		if supervised {
			err = within(h.ctx, stopWithin, func(ctx context.Context) error { return supervisor.Forget(ctx, ids) })
		} else {
			err = a.host.forgetExits(ids)
		}
		if err != nil && h.ctx.Err() == nil { // what stays behind is offered again by the next agent, and then forgotten
			a.log.Warn("the exit of an ended allocation stays behind", "allocation", id, "error", err)
		}
		a.post(h.ctx, func() { a.machine.Forgotten(id) })
	})
}

func (h *hands) Extend(ends map[muster.AllocID]exec.BootTime) {
	a, supervisor := h.a, h.a.supervisor
	a.work.Go(func() {
		err := within(h.ctx, extendWithin, func(ctx context.Context) error {
			_, err := supervisor.Extend(ctx, ends)
			return err
		})
		if err != nil && h.ctx.Err() == nil {
			a.log.Warn("the supervisor takes no leases", "error", err)
		}
	})
}

func (h *hands) Living(ends map[muster.AllocID]exec.BootTime) {
	a, supervisor := h.a, h.a.supervisor
	a.work.Go(func() {
		var alive []muster.AllocID
		err := within(h.ctx, extendWithin, func(ctx context.Context) (err error) {
			alive, err = supervisor.Extend(ctx, ends)
			return err
		})
		a.post(h.ctx, func() { a.machine.Lived(alive, err) })
	})
}

func (h *hands) Kill(id muster.AllocID) {
	a := h.a
	a.cfg.Metrics.overdue.Inc()
	a.log.Warn("its lease is over and its supervisor silent: killing it", "allocation", id.String())
	a.work.Go(func() {
		err := within(h.ctx, stopWithin, func(ctx context.Context) error { return a.host.kill(ctx, id) })
		a.post(h.ctx, func() { a.machine.Killed(id, err) })
	})
}

// Supervise connects to the supervisor again, or to a new one when it has died.
func (h *hands) Supervise(l step.Loss) {
	a, lost := h.a, h.a.supervisor
	a.log.Error("the connection to the supervisor is lost")
	a.supervisor = nil
	a.work.Go(func() {
		_ = lost.Close() // its connection is broken
		next, statuses := a.superviseAgain(h.ctx)
		if next == nil {
			return
		}
		found, records := l.Settle(statuses, a.host.exits(), time.Now())
		if a.writeJournal(records...) != nil || !a.post(h.ctx, func() {
			a.supervisor = next
			a.watch(h.ctx, next)
			a.machine.Regained(found)
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
				a.cfg.Metrics.supervisors.Inc()
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

// watch carries a supervisor's events to the loop, until it is gone.
func (a *Agent) watch(ctx context.Context, s Supervisor) {
	a.work.Go(func() {
		for status := range s.Events() {
			a.post(ctx, func() { a.machine.Status(status) })
		}
		a.post(ctx, a.machine.SupervisorLost)
	})
}

// writeJournal writes, and ends Run when that fails: without its memory an agent could start something twice.
func (a *Agent) writeJournal(records ...*wire.JournalRecord) error {
	if len(records) == 0 {
		return nil
	}
	began := time.Now()
	err := a.journal.write(records...)
	since(a.cfg.Metrics.journal, began)
	if err != nil {
		a.fail(err)
	}
	return err
}

func (h *hands) Found(id muster.AllocID, phase muster.AllocPhase) {
	h.a.log.Info("found", "allocation", id.String(), "phase", phase)
}

func (h *hands) Ready(id muster.AllocID) {
	h.a.log.Info("ready", "allocation", id.String(), "at", int64(h.a.host.now()))
}

func (h *hands) Running(id muster.AllocID, pid int) {
	h.a.log.Info("started", "allocation", id.String(), "pid", pid, "at", int64(h.a.host.now()))
}

func (h *hands) Ended(end muster.AllocReport, again bool) {
	h.a.log.Info("ended", "allocation", end.ID.String(), "class", end.Class.String(), "exit", end.ExitCode, "signal", end.Signal,
		"why", end.Message, "gone", int64(end.Ended), "at", int64(h.a.host.now()))
	if !again {
		h.a.cfg.Metrics.ended.WithLabelValues(classWord(end.Class)).Inc()
		h.a.work.Go(func() { h.a.touch(end.ID) })
	}
}

func (h *hands) Warn(message string, args ...any) { h.a.log.Warn(message, args...) }
