package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
)

// Agent is a running worker. One loop owns all that isn't marked; goroutines do what takes time and post what came of it.
type Agent struct {
	cfg     Config
	log     hclog.Logger
	store   *store
	id      identity
	node    muster.Node
	account account
	journal *journal // may be written from anywhere
	host    host
	roster  *roster // may be used from anywhere
	logs    *nodeLogs

	inbox chan func()
	work  sync.WaitGroup
	fail  context.CancelCauseFunc // ends Run with an error; may be called from anywhere

	complaint string // of connect alone

	checkpoints string // the folder that all nodes see, as the servers said; "" = the node's own disk

	tasks      map[muster.AllocID]*task
	ordered    []*task // tasks by number; nil: one came or went since
	seen       muster.Version
	supervisor Supervisor // nil: none, one is being started
	session    *session   // nil: none
	leases     leases
	flying     *flight // the report that is not acknowledged yet; nil: none
	reports    uint64  // sequence number of the newest report
	renewed    time.Time
	renewing   bool // the supervisor is being asked which tasks live
	swept      time.Time
	cpu        cpuMeter
}

// heartbeat is how often the loop looks at clocks: renewals, silent servers and supervisors, retries.
const heartbeat = 250 * time.Millisecond

// Run is a worker's life. It returns when ctx ends, or with what makes going on unsafe. Tasks run on under their supervisor:
// the next Run over the same data directory finds them. The config's listener is closed.
func Run(ctx context.Context, config Config) error {
	c, err := config.filled()
	if err != nil {
		return err
	}
	defer c.Listener.Close()
	store, err := openStore(c.DataDir)
	if err != nil {
		return err
	}
	a := &Agent{
		cfg: c, log: c.Logger, store: store, inbox: make(chan func()), tasks: map[muster.AllocID]*task{}, leases: newLeases(),
	}
	return errors.Join(a.run(ctx), store.close())
}

func (a *Agent) run(ctx context.Context) error {
	ctx, a.fail = context.WithCancelCause(ctx)
	defer a.fail(nil)
	history, err := a.remember(ctx)
	if err != nil {
		return err
	}
	defer a.journal.close() // what was acknowledged is on the disk
	a.supervisor, err = a.host.supervise(ctx)
	if err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	statuses, err := a.supervisor.List(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("supervisor: %w", err), a.supervisor.Close())
	}
	a.adopt(history, statuses, a.host.exits())
	a.watch(ctx, a.supervisor)

	server := grpc.NewServer(a.cfg.ServerOptions...)
	wire.RegisterNodeLogsServer(server, a.logs)
	a.work.Go(func() {
		if err := server.Serve(a.cfg.Listener); err != nil && ctx.Err() == nil {
			a.fail(fmt.Errorf("listener %s: %w", a.cfg.Address, err))
		}
	})
	a.work.Go(func() { a.connect(ctx) })
	a.loop(ctx)
	a.logs.close()
	server.Stop()
	if a.supervisor != nil {
		err = a.supervisor.Close()
	}
	a.work.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		err = errors.Join(cause, err)
	}
	return err
}

// remember reads who and what this worker is, from its data directory and the machine.
func (a *Agent) remember(ctx context.Context) (history, error) {
	var err error
	if a.id, err = identify(a.store, a.cfg.Name, a.cfg.Simulate != nil); err != nil {
		return history{}, err
	}
	if a.account, err = ownAccount(); err != nil {
		return history{}, err
	}
	if a.host = a.cfg.host; a.host == nil {
		a.host = newHost(&a.cfg, a.id.Instance)
	}
	if a.node, err = describe(ctx, &a.cfg, a.id, a.host.fencing()); err != nil {
		return history{}, err
	}
	learnt, err := a.store.servers()
	if err != nil {
		return history{}, fmt.Errorf("data directory: %w", err)
	}
	a.roster = newRoster(a.cfg.Servers, learnt)
	a.logs = newNodeLogs(&a.cfg)
	for _, dir := range []string{"tasks", "logs", "checkpoints", "supervisor"} {
		if err := os.MkdirAll(a.store.path(dir), 0o700); err != nil {
			return history{}, fmt.Errorf("data directory: %w", err)
		}
	}
	var h history
	if a.journal, h, err = openJournal(a.store.path("journal")); err != nil {
		return h, err
	}
	a.seen = h.Seen
	return h, nil
}

// loop does one thing after the other until ctx ends.
func (a *Agent) loop(ctx context.Context) {
	clock := time.NewTicker(heartbeat)
	defer clock.Stop()
	a.turn(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-a.inbox:
			f()
			a.takeMore()
		case <-clock.C:
			a.lookAtClocks(ctx)
		}
		a.turn(ctx)
	}
}

// together is how many posted things the loop does at most before it sees what follows from them.
const together = 256

// takeMore does what was posted meanwhile: what follows is worked out once for all of it.
func (a *Agent) takeMore() {
	for range together - 1 {
		select {
		case f := <-a.inbox:
			f()
		default:
			return
		}
	}
}

// post gives the loop something to do; false: ctx has ended, and it won't be done.
func (a *Agent) post(ctx context.Context, f func()) bool {
	select {
	case a.inbox <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

// turn does what follows from what is known now: the next action of each allocation, and the next report.
func (a *Agent) turn(ctx context.Context) {
	now := a.host.now()
	for _, t := range a.inOrder() {
		a.perform(ctx, t, step(t.desired(), t.observed(&a.leases, now)))
	}
	a.sendReports()
	a.logs.update(a.tasks)
}

// inOrder gives the tasks in the order of their numbers.
func (a *Agent) inOrder() []*task {
	if a.ordered == nil {
		a.ordered = make([]*task, 0, len(a.tasks))
		for _, t := range a.tasks {
			a.ordered = append(a.ordered, t)
		}
		slices.SortFunc(a.ordered, func(x, y *task) int { return compareIDs(x.id, y.id) })
	}
	return a.ordered
}

// lookAtClocks does what no message brings about.
func (a *Agent) lookAtClocks(ctx context.Context) {
	now := time.Now()
	for _, t := range a.tasks {
		if !t.retryAt.IsZero() && !now.Before(t.retryAt) {
			t.retryAt = time.Time{}
		}
	}
	a.killOverdue(ctx)
	if s := a.session; s != nil {
		limit := patience(a.shortestLease())
		if !s.welcome && now.Sub(s.opened) > welcomeWithin {
			s.hangUp(fmt.Errorf("no welcome within %s", muster.FormatDuration(welcomeWithin)))
		} else if at := a.leases.oldest(); at != 0 && a.host.now().Sub(at) > limit {
			s.hangUp(fmt.Errorf("no answer to a renewal within %s", muster.FormatDuration(limit)))
		} else if s.welcome && now.Sub(a.renewed) >= renewEvery(a.shortestLease()) {
			a.renewAll(ctx)
		} else if s.welcome {
			a.renewUnleased(now)
		}
	}
	if now.Sub(a.swept) >= sweepEvery {
		a.swept = now
		a.sweep(ctx, now)
	}
}

// welcomeWithin is how long a server may take to register this node: an election and a few commits.
const welcomeWithin = 10 * time.Second

// shortestLease is of what lives here; 0 = nothing does.
func (a *Agent) shortestLease() time.Duration {
	var shortest time.Duration
	for _, t := range a.tasks {
		if l := t.lease(); l > 0 && t.phase != muster.AllocEnded && (shortest == 0 || l < shortest) {
			shortest = l
		}
	}
	return shortest
}

// renewAll renews what lives: first the supervisor is asked what does, so that nobody extends the lease of a task whose
// supervisor could not end it.
func (a *Agent) renewAll(ctx context.Context) {
	if a.renewing {
		return
	}
	a.renewed = time.Now()
	ends := map[muster.AllocID]exec.BootTime{}
	var ids []muster.AllocID
	for id, t := range a.tasks {
		switch {
		case t.phase == muster.AllocEnded || t.gone:
		case t.supervised:
			ends[id] = a.leases.ends[id]
		default:
			ids = append(ids, id)
		}
	}
	if len(ends) == 0 || a.supervisor == nil {
		a.renew(ids, a.gauges())
		return
	}
	a.renewing = true
	supervisor := a.supervisor
	a.work.Go(func() {
		var alive []muster.AllocID
		err := within(ctx, extendWithin, func(ctx context.Context) (err error) {
			alive, err = supervisor.Extend(ctx, ends)
			return err
		})
		a.post(ctx, func() {
			a.renewing = false
			if err != nil {
				a.log.Warn("the supervisor does not say what lives: no lease of its tasks is renewed", "error", err)
			}
			a.renew(append(ids, alive...), a.gauges())
		})
	})
}

// renewUnleased asks again for what waits for its first lease: a renewal on its way to a leader that died gets no answer.
func (a *Agent) renewUnleased(now time.Time) {
	var ids []muster.AllocID
	for id, t := range a.tasks {
		_, leased := a.leases.ends[id]
		if t.assignment != nil && !t.gone && !leased && t.phase < muster.AllocRunning && now.Sub(t.named) >= heartbeat {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		a.renew(ids, nil)
	}
}

// gauges are the newest measurements of this machine.
func (a *Agent) gauges() *wire.Gauges {
	g := &wire.Gauges{CpuMilli: int64(a.cpu.read(time.Now()))}
	if _, used, err := meminfo(); err == nil {
		g.MemoryUsed = int64(used)
	}
	return g
}

// renew asks for the leases of ids; none: it only says that this node is there.
func (a *Agent) renew(ids []muster.AllocID, gauges *wire.Gauges) {
	if a.session == nil || !a.session.welcome {
		return
	}
	seq := a.leases.send(a.host.now(), ids)
	now := time.Now()
	for _, id := range ids {
		if t := a.tasks[id]; t != nil {
			t.named = now
		}
	}
	a.session.send(&wire.FromWorker{Message: &wire.FromWorker_Renew{Renew: &wire.Renew{
		Seq: seq, Allocs: wire.AllocIDsOf(ids), Gauges: gauges,
	}}})
}

func (a *Agent) receiveRenewed(ctx context.Context, seq uint64) {
	moved := a.leases.answered(seq, func(id muster.AllocID) time.Duration {
		if t := a.tasks[id]; t != nil {
			return t.lease()
		}
		return 0
	})
	ends := map[muster.AllocID]exec.BootTime{}
	for _, id := range moved {
		if t := a.tasks[id]; t.supervised && t.phase != muster.AllocEnded {
			ends[id] = a.leases.ends[id]
		}
	}
	if len(ends) == 0 || a.supervisor == nil {
		return
	}
	supervisor := a.supervisor
	a.work.Go(func() {
		err := within(ctx, extendWithin, func(ctx context.Context) error {
			_, err := supervisor.Extend(ctx, ends)
			return err
		})
		if err != nil && ctx.Err() == nil {
			a.log.Warn("the supervisor takes no leases", "error", err)
		}
	})
}

// killOverdue kills what a silent supervisor should have killed for its lease.
func (a *Agent) killOverdue(ctx context.Context) {
	now := a.host.now()
	for id, t := range a.tasks {
		if t.killing || !t.forked || t.phase == muster.AllocEnded || !a.leases.overdue(id, t.lease(), now) {
			continue
		}
		t.killing = true
		a.work.Go(func() {
			defer a.post(ctx, func() { t.killing = false })
			err := within(ctx, stopWithin, func(ctx context.Context) error { return a.host.kill(ctx, id) })
			if err != nil && ctx.Err() == nil {
				a.log.Error("its lease is over, its supervisor is silent, and it can't be killed", "allocation", id, "error", err)
			}
		})
	}
}

// within calls f with a deadline.
func within(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}
