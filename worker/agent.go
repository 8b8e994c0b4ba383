package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/step"
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

	machine    *step.Machine // decides; what follows from it the hands do
	supervisor Supervisor    // nil: none, one is being started
	session    *session      // nil: none
	sessions   uint64        // number of the newest: that of this agent's life, then counted
	swept      time.Time
	cpu        cpuMeter
}

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
		cfg: c, log: c.Logger, store: store, inbox: make(chan func()),
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
	a.cfg.Metrics.supervisors.Inc()
	statuses, err := a.supervisor.List(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("supervisor: %w", err), a.supervisor.Close())
	}
	self := step.Self{Node: a.cfg.Name, Boot: a.id.Boot, Refuses: refusal(&a.cfg, a.account)}
	a.machine = step.New(self, &hands{a, ctx}, history, statuses, a.host.exits())
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
func (a *Agent) remember(ctx context.Context) (step.History, error) {
	var err error
	if a.id, err = identify(a.store, a.cfg.Name, a.cfg.Simulate != nil); err != nil {
		return step.History{}, err
	}
	life, err := a.store.life(time.Now())
	if err != nil {
		return step.History{}, fmt.Errorf("data directory: %w", err)
	}
	a.sessions = life << 24
	if a.account, err = ownAccount(); err != nil {
		return step.History{}, err
	}
	if a.host = a.cfg.host; a.host == nil {
		a.host = newHost(&a.cfg, a.id.Instance)
	}
	if a.node, err = describe(ctx, &a.cfg, a.id, a.host.fencing()); err != nil {
		return step.History{}, err
	}
	learnt, err := a.store.servers()
	if err != nil {
		return step.History{}, fmt.Errorf("data directory: %w", err)
	}
	a.roster = newRoster(a.cfg.Servers, learnt)
	a.logs = newNodeLogs(&a.cfg)
	for _, dir := range []string{"tasks", "logs", "checkpoints", "supervisor"} {
		if err := os.MkdirAll(a.store.path(dir), 0o700); err != nil {
			return step.History{}, fmt.Errorf("data directory: %w", err)
		}
	}
	var h step.History
	if a.journal, h, err = openJournal(a.store.path("journal")); err != nil {
		return h, err
	}
	return h, nil
}

// loop does one thing after the other until ctx ends.
func (a *Agent) loop(ctx context.Context) {
	clock := time.NewTicker(step.Heartbeat)
	defer clock.Stop()
	a.turn()
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
		a.turn()
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

// turn does what follows from what is known now.
func (a *Agent) turn() {
	a.machine.Turn()
	a.logs.update(a.machine)
	a.cfg.Metrics.count(a.machine)
	a.cfg.Metrics.talks(a.session != nil && a.session.talk != nil && a.session.talk.Welcomed())
}

// lookAtClocks does what no message brings about.
func (a *Agent) lookAtClocks(ctx context.Context) {
	a.machine.LookAtClocks()
	if now := time.Now(); now.Sub(a.swept) >= sweepEvery {
		a.swept = now
		a.sweep(ctx, now)
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

// within calls f with a deadline.
func within(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}
