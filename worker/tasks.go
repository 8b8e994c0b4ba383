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
)

// task is what the agent knows of one allocation.
type task struct {
	id         muster.AllocID
	assignment *Assignment // nil: re-adopted, and no view has named it yet
	broken     string      // why its assignment can't be run by this program
	gone       bool        // the state has it as ended, or doesn't know it

	phase      muster.AllocPhase
	end        muster.AllocReport // when phase is AllocEnded, or as far as it is known
	supervised bool               // the supervisor knows it
	intent     bool               // that it may be started is on the disk
	forked     bool               // its start was ordered: never again
	asked      muster.StopMode    // the strongest stop that the supervisor has taken
	own        muster.Stop        // what the agent itself wants
	busy       bool               // an action is under way
	killing    bool               // it is being killed past a silent supervisor
	named      time.Time          // when a renewal last named it
	retryAt    time.Time          // when what failed is tried again; zero = nothing is

	acked muster.AllocPhase // the phase that the servers have
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

func (t *task) lease() time.Duration {
	if t.assignment == nil {
		return 0
	}
	return t.assignment.Alloc.Lease
}

func (t *task) desired() desired {
	d := desired{Gone: t.gone, Stop: t.own}
	if t.assignment != nil || t.broken != "" {
		d.Known = true
	}
	if t.own.Mode != muster.StopNone {
		d.Known = true
	}
	if a := t.assignment; a != nil {
		d.Go = a.Alloc.Go
		if a.Alloc.Stop.Mode > d.Stop.Mode {
			d.Stop = a.Alloc.Stop
		}
	}
	return d
}

func (t *task) observed(l *leases, now exec.BootTime) observed {
	return observed{
		Phase: t.phase, Busy: t.busy || !t.retryAt.IsZero(), Forked: t.forked, Asked: t.asked,
		Leased: l.holds(t.id, t.lease(), now),
	}
}

// report is what there is to say of the allocation now.
func (t *task) report() muster.AllocReport {
	r := t.end
	r.ID, r.Phase = t.id, t.phase
	if t.phase != muster.AllocEnded {
		r = muster.AllocReport{ID: t.id, Phase: t.phase, Running: t.end.Running}
	}
	return r
}

// news says whether the servers should hear of it. That it is ready matters to a gang that waits for it only.
func (t *task) news() bool {
	if t.phase <= t.acked {
		return false
	}
	switch t.phase {
	case muster.AllocReady:
		return t.assignment != nil && !t.assignment.Alloc.Go
	case muster.AllocRunning, muster.AllocStopping, muster.AllocEnded:
		return true
	}
	return false
}

// perform begins an action. What takes time runs beside the loop and posts what came of it.
func (a *Agent) perform(ctx context.Context, t *task, what action) {
	switch what {
	case doNothing:
	case doEnd:
		stop := t.desired().Stop
		a.endUnstarted(ctx, t, stop.Class, stop.Reason)
	case doForget:
		a.forget(ctx, t)
	default:
		if a.supervisor == nil {
			return // one is being started
		}
		switch what {
		case doPrepare:
			a.prepare(ctx, t)
		case doStart:
			a.start(ctx, t)
		case doStop:
			a.stop(ctx, t, t.desired().Stop)
		case doKill:
			a.stop(ctx, t, muster.Stop{Mode: muster.StopKill, Class: muster.ClassNode, Reason: "the servers do not know it any more"})
		}
	}
}

func (a *Agent) facts(t *task) *Facts {
	checkpoints := orElse(a.checkpoints, filepath.Join(a.cfg.DataDir, "checkpoints"))
	return &Facts{
		Node: a.cfg.Name, IP: a.cfg.IP, GPUs: a.node.GPUs,
		User: a.account.Name, Home: a.account.Home, Shell: a.account.Shell,
		TaskDir: a.cfg.taskDir(t.id), Checkpoint: filepath.Join(checkpoints, t.assignment.Alloc.Job.String()),
		Deadline: deadline(t.assignment.Spec, time.Now()),
	}
}

// prepare sets a task up. When it may start at once, that intent goes to the disk meanwhile.
func (a *Agent) prepare(ctx context.Context, t *task) {
	if t.broken != "" {
		a.endUnstarted(ctx, t, muster.ClassPrepare, fmt.Sprintf("node %s does not understand it: %s", a.cfg.Name, t.broken))
		return
	}
	if a.account.Root && !a.cfg.AllowRoot {
		a.endUnstarted(ctx, t, muster.ClassPrepare, fmt.Sprintf(
			"node %s would run it as root: run the agent as another user, or set allow_root = true in its worker block", a.cfg.Name))
		return
	}
	t.busy, t.phase = true, muster.AllocPreparing
	assignment, facts, supervisor := t.assignment, a.facts(t), a.supervisor
	end := a.leases.first(t.id, t.lease(), a.host.now())
	var intents []*wire.JournalRecord
	if assignment.Alloc.Go {
		intents = append(intents, a.intentRecord(t))
	}
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
		err := within(ctx, prepareWithin, func(ctx context.Context) error {
			facts := *facts
			if assignment.spread() {
				facts.Interface = masterInterface(assignment.Peers[0].IP)
			}
			spec, err := Task(assignment, &facts, a.cfg.logDir(t.id))
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
		a.post(ctx, func() {
			t.busy, t.intent = false, len(intents) > 0
			t.supervised = true // or it may be, when that failed: forgetting asks the supervisor
			if err != nil {
				a.endUnstarted(ctx, t, muster.ClassPrepare, a.located(err))
				return
			}
			a.reach(t, muster.AllocReady)
		})
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

func (a *Agent) intentRecord(t *task) *wire.JournalRecord {
	return intentRecord(a.seen, t.id, intent{Boot: a.id.Boot, Time: muster.TimeOf(time.Now())})
}

// start lets a prepared task's process begin, once. The intent is on the disk before: should the agent die now, the next one
// knows that it may have been started, and never starts it again.
func (a *Agent) start(ctx context.Context, t *task) {
	t.busy, t.forked = true, true
	var records []*wire.JournalRecord
	if !t.intent {
		records = append(records, a.intentRecord(t))
	}
	supervisor, alloc, group := a.supervisor, t.assignment.Alloc, t.assignment.group().Name
	a.work.Go(func() {
		if a.writeJournal(records...) != nil {
			return
		}
		a.log.Info("starting", "allocation", t.id.String(), "job", alloc.Job, "attempt", alloc.Attempt, "group", group, "rank", alloc.Rank,
			"slots", alloc.Slots, "boot", a.id.Boot, "at", int64(a.host.now()))
		err := within(ctx, startWithin, func(ctx context.Context) error { return supervisor.Start(ctx, t.id) })
		a.post(ctx, func() {
			t.busy, t.intent = false, true
			if err != nil && t.phase < muster.AllocRunning { // it may run all the same: it has to be ended
				t.own = muster.Stop{Mode: muster.StopKill, Class: muster.ClassNode, Reason: fmt.Sprintf(
					"node %s could not start it: %v", a.cfg.Name, err)}
			}
		})
	})
}

func (a *Agent) stop(ctx context.Context, t *task, stop muster.Stop) {
	t.busy = true
	supervisor := a.supervisor
	a.work.Go(func() {
		err := within(ctx, stopWithin, func(ctx context.Context) error { return supervisor.Stop(ctx, t.id, stop) })
		a.post(ctx, func() {
			t.busy = false
			if muster.KindOf(err) == muster.KindNotFound { // then it has no process of it either
				a.endUnstarted(ctx, t, muster.ClassNode, "the supervisor of node "+a.cfg.Name+" does not know it")
				return
			}
			if err != nil {
				a.log.Warn("the supervisor does not take a stop: trying again", "allocation", t.id, "error", err)
				t.retryAt = time.Now().Add(retryAfter)
				return
			}
			t.asked = max(t.asked, stop.Mode)
		})
	})
}

// endUnstarted ends an allocation whose process was never started. The result is on the disk before anyone hears of it.
func (a *Agent) endUnstarted(ctx context.Context, t *task, class muster.Class, message string) {
	t.busy = true
	end := muster.AllocReport{
		ID: t.id, Phase: muster.AllocEnded, Ended: muster.TimeOf(time.Now()), Class: class, Message: message,
	}
	record := endedRecord(a.seen, end)
	a.work.Go(func() {
		if a.writeJournal(record) != nil {
			return
		}
		a.post(ctx, func() {
			t.busy = false
			a.ended(ctx, t, end)
		})
	})
}

// ended takes in the end of an allocation, however it came about. The first one stays.
func (a *Agent) ended(ctx context.Context, t *task, end muster.AllocReport) {
	if t.phase == muster.AllocEnded {
		return
	}
	t.phase, t.end = muster.AllocEnded, end
	a.logEnd(t)
	a.work.Go(func() { a.touch(t.id) })
}

// logEnd writes down how an allocation ended.
func (a *Agent) logEnd(t *task) {
	a.log.Info("ended", "allocation", t.id.String(), "class", t.end.Class.String(), "exit", t.end.ExitCode, "signal", t.end.Signal,
		"why", t.end.Message, "gone", int64(t.end.Ended), "at", int64(a.host.now()))
}

// forget removes every trace of an ended allocation but its logs and its directory. The highest view is on the disk before:
// no older one can bring it back.
func (a *Agent) forget(ctx context.Context, t *task) {
	t.busy = true
	record, supervisor := forgetRecord(a.seen, t.id), a.supervisor
	ids := []muster.AllocID{t.id}
	supervised := t.supervised && supervisor != nil
	a.work.Go(func() {
		if a.writeJournal(record) != nil {
			return
		}
		var err error
		if supervised {
			err = within(ctx, stopWithin, func(ctx context.Context) error { return supervisor.Forget(ctx, ids) })
		} else {
			err = a.host.forgetExits(ids)
		}
		if err != nil && ctx.Err() == nil { // what stays behind is offered again by the next agent, and then forgotten
			a.log.Warn("the exit of an ended allocation stays behind", "allocation", t.id, "error", err)
		}
		a.post(ctx, func() {
			delete(a.tasks, t.id)
			a.ordered = nil
			a.leases.drop(t.id)
		})
	})
}

// writeJournal writes, and ends Run when that fails: without its memory an agent could start something twice.
func (a *Agent) writeJournal(records ...*wire.JournalRecord) error {
	if len(records) == 0 {
		return nil
	}
	err := a.journal.write(records...)
	if err != nil {
		a.fail(err)
	}
	return err
}

// flight is a report on its way.
type flight struct {
	seq    uint64
	phases map[muster.AllocID]muster.AllocPhase
}

// sendReports sends what is news. While one report is on its way the next gathers; what a session loses, the hello of the
// next one says.
func (a *Agent) sendReports() {
	if a.session == nil || !a.session.welcome || a.flying != nil {
		return
	}
	var reports []muster.AllocReport
	phases := map[muster.AllocID]muster.AllocPhase{}
	for _, t := range a.inOrder() {
		if t.news() {
			reports = append(reports, t.report())
			phases[t.id] = t.phase
		}
	}
	if len(reports) == 0 {
		return
	}
	a.reports++
	a.flying = &flight{seq: a.reports, phases: phases}
	a.session.send(&wire.FromWorker{Message: &wire.FromWorker_Report{Report: &wire.Report{
		Seq: a.reports, Allocs: wire.AllocReportsOf(reports),
	}}})
}

func (a *Agent) receiveAck(seq uint64) {
	if a.flying == nil || a.flying.seq != seq {
		return
	}
	for id, phase := range a.flying.phases {
		if t := a.tasks[id]; t != nil {
			t.acked = max(t.acked, phase)
		}
	}
	a.flying = nil
}
