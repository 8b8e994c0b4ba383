package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/cluster"
	"github.com/musterhpc/muster/config"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/worker"
	"github.com/musterhpc/muster/worker/exec"
)

var _ rpc.Local = (*cluster.Server)(nil)

func (a *app) agentCommand() *cobra.Command {
	var path string
	var dev bool
	cmd := &cobra.Command{
		Use: "agent --config FILE|DIR", Short: "be a server, a worker, or both", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return muster.Errorf(muster.KindUsage, "the agent needs its file").WithHint("Say: muster agent --config /etc/muster.d")
			}
			c, diagnostics := config.Load(path)
			if err := config.WriteText(a.io.err, diagnostics, a.textWidth(), colours(a.io.err)); err != nil {
				return err
			}
			if diagnostics.HasErrors() {
				return alreadySaid{muster.KindInvalid}
			}
			var cuts *cuts
			if dev {
				var err error
				if cuts, err = followCuts(); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runAgent(ctx, c, cuts, a.logger(c))
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the agent's file, or a folder of them")
	cmd.Flags().BoolVar(&dev, "dev", false, "a child of muster dev, which cuts its network")
	_ = cmd.Flags().MarkHidden("dev") // it is there
	return cmd
}

func (a *app) logger(c *config.Config) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: c.Name, Level: hclog.LevelFromString(c.Log.Level), JSONFormat: c.Log.Format == "json",
		Output: a.io.err, TimeFormat: "2006-01-02T15:04:05.000Z07:00"})
}

func (a *app) superviseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "supervise", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return exec.SuperviseArgs(cmd.Context(), args, a.io.err)
		},
	}
}

// An agent is what runs in this process. Parts are started in the order server, API, worker and stopped in reverse: a worker
// needs servers, the API needs its server.
type agent struct {
	config *config.Config
	cuts   *cuts // nil unless it is a child of muster dev
	log    hclog.Logger
	fatal  chan error // what must end the process at once
	ended  chan error // a part that ended by itself
	parts  []func()   // stop, in reverse order
	wait   sync.WaitGroup

	registry *prometheus.Registry

	headroom []byte // never touched: see serverHeadroom
}

// serverHeadroom is memory that a server counts as its own and never touches, so that it costs address space only: while the
// state is small the garbage collector would run tens of times a second for the garbage of requests.
const serverHeadroom = 32 << 20

func runAgent(ctx context.Context, c *config.Config, cuts *cuts, log hclog.Logger) error {
	a := &agent{config: c, cuts: cuts, log: log, fatal: make(chan error, 1), ended: make(chan error, 8), registry: newRegistry()}
	err := a.start(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-a.ended:
		case err = <-a.fatal:
			// Fail-stop: the disk can't be trusted. Nothing is stopped in order, since that waits for the disk and writes to it;
			// what survives is what a kill -9 leaves.
			return err
		}
	}
	for i := len(a.parts) - 1; i >= 0; i-- {
		a.parts[i]()
	}
	a.wait.Wait()
	return err
}

func (a *agent) start(ctx context.Context) error {
	if err := os.MkdirAll(a.config.DataDir, 0o700); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	me, err := user.Current()
	if err != nil {
		return err
	}
	var servers []string
	var lookup func(context.Context) ([]string, error)
	if a.config.Server != nil {
		address, err := a.startServer(me.Username)
		if err != nil {
			return err
		}
		servers = []string{address}
	} else if err = a.measureLibraries(); err != nil { // memberlist's
		return err
	} else if lookup, err = a.observe(); err != nil {
		return err
	}
	if a.config.Worker == nil {
		return nil
	}
	return a.startWorker(ctx, servers, lookup)
}

func (a *agent) address(port int) string { return net.JoinHostPort(a.config.Bind, strconv.Itoa(port)) }

// run runs a part until it ends; that it ended by itself ends the agent.
func (a *agent) run(name string, part func() error) {
	a.wait.Go(func() {
		if err := part(); err != nil {
			a.ended <- fmt.Errorf("%s: %w", name, err)
		}
	})
}

func (a *agent) startServer(username string) (address string, err error) {
	c := a.config
	listener, err := net.Listen("tcp", a.address(c.Ports.RPC))
	if err != nil {
		return "", portTaken("rpc", err)
	}
	address = listener.Addr().String()
	web, err := net.Listen("tcp", a.address(c.Ports.HTTP))
	if err != nil {
		return "", errors.Join(portTaken("http", err), listener.Close())
	}
	raft, grpc := cluster.Split(listener)
	timing, err := cluster.ParseTiming(c.Raft.Timing)
	if err != nil {
		return "", err
	}
	a.headroom = make([]byte, serverHeadroom)
	if err := a.measureLibraries(); err != nil {
		return "", err
	}
	settings := cluster.Config{
		DataDir: filepath.Join(c.DataDir, "server"), Name: c.Name, ClusterID: c.Cluster, Version: version,
		RPCAddress: address, HTTPAddress: web.Addr().String(), RaftListener: raft,
		GossipAddress: a.address(c.Ports.Gossip), Join: c.Join, Expect: c.Server.Expect, Voters: c.Server.Voters,
		Timing: timing, Network: a.cuts.network(), Logger: a.log.Named("server"),
		Fatal: func(err error) { a.fatal <- err; select {} },
	}
	injectFaults(&settings)
	server, err := cluster.Start(settings)
	if err != nil {
		return "", errors.Join(err, raft.Close(), grpc.Close(), web.Close())
	}
	a.parts = append(a.parts, func() {
		if err := server.Shutdown(); err != nil {
			a.log.Error("the server did not end well", "error", err)
		}
	})
	service := rpc.NewServer(rpc.Config{Local: server, Logger: a.log.Named("rpc"), User: username, Dial: a.cuts.dialer(),
		Checkpoints: c.Server.Checkpoints, Metrics: scrapeHandler(a.registry, a.log.Named("metrics")), ParseJobs: parseAway})
	a.registry.MustRegister(server.Collectors()...)
	a.registry.MustRegister(service.Collectors()...)
	a.parts = append(a.parts, service.Stop)
	local, err := listenUnix(filepath.Join(c.DataDir, "api.sock"))
	if err != nil {
		return "", err
	}
	a.run("rpc", func() error { return service.Serve(grpc, nil) })
	a.run("http", func() error { return service.ServeHTTP(web, nil) })
	a.run("api.sock", func() error { return service.Serve(local, nil) })
	return address, nil
}

// listenUnix listens on a socket that any local user may call: who calls is known by the peer's uid. A socket that a killed
// agent left behind is taken over: the data directory's lock says that no other agent uses it.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("the agent's socket: %w", err)
	}
	return l, os.Chmod(path, 0o666)
}

func portTaken(name string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return muster.Errorf(muster.KindConflict, "the %s port is taken: %v", name, err).WithHint("Set another one in ports { %s = … }", name)
	}
	return err
}

// observe joins gossip as a worker; the function it gives waits until a server is heard of.
func (a *agent) observe() (func(context.Context) ([]string, error), error) {
	c := a.config
	observer, err := cluster.Observe(c.Cluster, c.Name, a.address(c.Ports.Gossip), c.Join, a.cuts.network(), a.log.Named("gossip"))
	if err != nil {
		return nil, err
	}
	a.parts = append(a.parts, observer.Close)
	return func(ctx context.Context) ([]string, error) {
		said := time.NewTimer(5 * time.Second)
		defer said.Stop()
		for {
			if servers := observer.Servers(); len(servers) > 0 {
				return servers, nil
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-observer.Changed():
			case <-said.C:
				a.log.Warn("no server is heard of yet: none runs at these addresses (host:4692, the gossip port), or theirs is another cluster",
					"join", c.Join, "cluster", c.Cluster)
			}
		}
	}, nil
}

func (a *agent) startWorker(ctx context.Context, servers []string, lookup func(context.Context) ([]string, error)) error {
	c := a.config
	port := c.Ports.RPC
	if c.Server != nil {
		port = 0 // the server has the port; a worker beside it takes a free one, and registers it
	}
	listener, err := net.Listen("tcp", a.address(port))
	if err != nil {
		return portTaken("rpc", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	w := c.Worker
	options := worker.Config{
		Name: c.Name, Cluster: c.Cluster, Version: version, DataDir: filepath.Join(c.DataDir, "worker"), RunDir: filepath.Join(c.DataDir, "run"),
		Listener: listener, Servers: servers, Dial: rpc.WorkerDial(a.cuts.dialer(), nil), Cost: w.CostPerHour,
		ReserveCores: w.Reserve.Cores, ReserveMemory: w.Reserve.Memory, AllowRoot: w.AllowRoot, Binary: binary, Logger: a.log.Named("worker"),
	}
	options.PortLow, options.PortHigh = w.PortLow, w.PortHigh
	options.Metrics = worker.NewMetrics()
	a.registry.MustRegister(options.Metrics.Collectors()...)
	if c.Server == nil {
		if err := a.startMonitor(options.Metrics); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	for key, value := range w.Labels {
		options.Labels = append(options.Labels, muster.Label{Key: key, Value: value}) // the worker sorts them
	}
	if w.GPUs.Simulate > 0 {
		options.Simulate = &worker.Simulated{GPUs: w.GPUs.Simulate, Model: w.GPUs.Model, MilliCores: w.GPUs.Cores, Memory: w.GPUs.Memory}
	}
	ctx, stop := context.WithCancel(ctx)
	a.parts = append(a.parts, stop)
	a.run("worker", func() error {
		if lookup != nil {
			found, err := lookup(ctx)
			if err != nil {
				return listener.Close()
			}
			options.Servers = found
		}
		return worker.Run(ctx, options)
	})
	return nil
}
