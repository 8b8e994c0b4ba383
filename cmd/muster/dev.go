package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

// devReadyWithin bounds how long a dev cluster may take to elect a leader and know its workers.
const devReadyWithin = 60 * time.Second

func (a *app) devCommand() *cobra.Command {
	options := devOptions{}
	var noRestart bool
	var gpus, killAfter string
	cmd := &cobra.Command{
		Use:   "dev [FILE…]",
		Short: "a cluster on this machine: servers and workers as processes, simulated GPUs, real tasks",
		Long: "Starts servers and workers with simulated GPUs as child processes in a temporary directory, on loopback, and writes the\n" +
			"context \"dev\", so that plain `muster run …` in another shell finds them. With job files: runs them one after the other,\n" +
			"attached, tears everything down and exits with the worst exit code.",
		RunE: func(cmd *cobra.Command, args []string) error {
			a.attached = len(args) > 0
			options.restart = !noRestart
			n, err := strconv.Atoi(gpus)
			if err != nil || n < 0 || n > muster.MaxSlots {
				if gpus == "real" {
					return muster.Errorf(muster.KindUsage, "--gpus real is not supported yet").WithHint("Say a number of simulated GPUs, as in --gpus 8")
				}
				return muster.Errorf(muster.KindUsage, "--gpus %q is not a number from 0 to %d", gpus, muster.MaxSlots)
			}
			options.gpus = n
			if options.servers < 1 || options.servers > 9 || options.workers < 0 || options.workers > 200 {
				return muster.Errorf(muster.KindUsage, "--servers goes from 1 to 9, --workers from 0 to 200")
			}
			if _, err := muster.ParseBytes(options.memory); err != nil {
				return muster.Errorf(muster.KindUsage, "--memory: %v", err)
			}
			if _, err := loopbackPort(options.http); options.http != "" && err != nil {
				return err
			}
			if options.cores < 1 {
				return muster.Errorf(muster.KindUsage, "--cores %d is no number of cores", options.cores)
			}
			kill, err := optional(killAfter, muster.ParseDuration)
			if err != nil {
				return muster.Errorf(muster.KindUsage, "--kill-leader-after: %v", err)
			}
			return a.dev(cmd.Context(), options, args, kill)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&options.servers, "servers", 3, "number of servers")
	flags.IntVar(&options.workers, "workers", 4, "number of workers")
	flags.StringVar(&gpus, "gpus", "8", "simulated GPUs of each worker")
	flags.StringVar(&options.gpuModel, "gpu-model", "H100", "their model")
	flags.IntVar(&options.cores, "cores", 64, "cores that each worker announces, for placement only")
	flags.StringVar(&options.memory, "memory", "512GiB", "memory that each worker announces, for placement only")
	flags.StringVar(&options.dir, "data-dir", "", "where everything is kept; else a temporary directory, removed at the end")
	flags.StringVar(&options.http, "http", "", "HTTP address of s1, as in 127.0.0.1:4690; else chosen")
	flags.BoolVar(&noRestart, "no-restart", false, "don't start again what died")
	flags.StringVar(&killAfter, "kill-leader-after", "", "with files: kill -9 the leader so long after a job began to run")
	cmd.AddCommand(a.devStatusCommand(),
		a.devVerb("kill-leader", "kill -9 of the leader", cobra.NoArgs, "POST", "/kill-leader", "killed %s, which led"),
		a.devVerb("kill-worker N", "kill -9 of a worker with all its tasks, as when a machine loses power", cobra.ExactArgs(1),
			"POST", "/kill-worker", "killed %s and all its tasks"),
		a.devVerb("add-worker", "one more worker", cobra.NoArgs, "POST", "/add-worker", "%s joins"),
		a.devVerb("start NAME", "start again what died under --no-restart", cobra.ExactArgs(1), "POST", "/start", "started %s"),
		a.devVerb("stop", "end the running muster dev", cobra.NoArgs, "POST", "/stop", "%s"))
	cmd.AddCommand(a.devPartitionCommand(), a.devHealCommand(), laterVerb("dev", "fail-gpu"))
	return cmd
}

func (a *app) dev(ctx context.Context, options devOptions, files []string, killAfter time.Duration) (err error) {
	// Errors of the files come before anything is started.
	var jobs []*submission
	for _, file := range files {
		one, err := a.parseFile(file, jobfile.Options{})
		if err != nil {
			return err
		}
		jobs = append(jobs, one)
	}
	// A closed terminal and a reader that went away end it in order too: supervisors would outlive it. The reader is missed by
	// the write that fails, not by its signal: that comes for the sockets of killed servers as well.
	signal.Ignore(syscall.SIGPIPE)
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(ctx, ends...)
	defer stop()
	if len(files) == 0 {
		if err := contextWritable(); err != nil {
			return err
		}
		if running, err := readDevRecord(); err == nil {
			if running.answers(ctx) {
				return muster.Errorf(muster.KindConflict, "a muster dev runs already, with pid %d, in %s", running.Pid, running.Dir).
					WithHint("End it with: muster dev stop")
			}
			running.clear(a.io.err)
		}
	}
	if err := devPortFree(options.http); err != nil {
		return err
	}
	place, err := takePlace(options.dir, options.servers, a.io.err)
	if err != nil {
		return err
	}
	defer place.leave()
	options.dir, options.temporary = place.dir, place.own
	began := time.Now()
	cluster, err := newDevCluster(options)
	if err != nil {
		return err
	}
	if os.Getuid() == 0 && options.workers > 0 {
		fmt.Fprintln(a.io.err, "muster dev: started by root, so tasks run as root")
	}
	children, endChildren := context.WithCancel(context.WithoutCancel(ctx))
	cluster.start(children)
	defer func() { endChildren(); cluster.stop() }()

	client, err := cluster.ready(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer client.Close()
	fmt.Fprintf(a.io.err, "muster dev: %s, %s with %d simulated %s each, ready after %.1f s\n",
		count(options.servers, "server"), count(options.workers, "worker"), options.gpus, options.gpuModel, time.Since(began).Seconds())
	leader := func(ctx context.Context) (string, error) { return cluster.leads(ctx, client) }
	if len(files) > 0 {
		return a.devFiles(ctx, cluster, client, jobs, killAfter)
	}
	return a.devServe(ctx, children, stop, cluster, leader)
}

// devServe keeps the cluster until Ctrl-C or `dev stop`.
func (a *app) devServe(ctx, children context.Context, stop func(), cluster *devCluster, leader func(context.Context) (string, error)) error {
	record := &devRecord{Pid: os.Getpid(), Dir: cluster.options.dir, Temporary: cluster.options.temporary, Control: filepath.Join(cluster.options.dir, "dev.sock")}
	if err := record.write(); err != nil {
		return err
	}
	defer record.remove()
	forget, err := saveDevContext(cluster.addresses())
	if err != nil {
		return err
	}
	defer forget()
	fmt.Fprintf(a.io.err, "muster dev: in another shell: muster run -- hostname; muster node ls; muster dev kill-leader\n"+
		"            everything lives in %s; HTTP at http://%s; Ctrl-C ends it\n", cluster.options.dir, cluster.all()[0].http)
	return cluster.serveControl(ctx, children, record.Control, leader, stop)
}

// devFiles runs the files one after the other, attached, and gives the worst exit code.
func (a *app) devFiles(ctx context.Context, cluster *devCluster, client *rpc.Client, jobs []*submission, killAfter time.Duration) error {
	worst := 0
	for _, one := range jobs {
		request := &wire.SubmitRequest{RequestId: newRequestID()}
		for _, spec := range one.specs {
			request.Specs = append(request.Specs, wire.JobSpecOf(spec))
		}
		reply, err := client.Submit(ctx, request)
		if err != nil && muster.KindOf(err) != muster.KindUnavailable && ctx.Err() == nil {
			a.report(a.refused(one, err))
			worst = max(worst, exitMuster) // refused: the next file has its turn all the same
			continue
		}
		if err != nil {
			return err
		}
		refs := refsOf(reply.GetIds())
		killing, cancel := context.WithCancel(ctx)
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			if killAfter > 0 {
				a.killOnTheWay(killing, cluster, client, refs, killAfter)
			}
		}()
		err = a.follow(ctx, client, refs, len(one.specs) == 1)
		cancel()
		<-killed
		var code exitCode
		if err != nil && !errors.As(err, &code) {
			return err
		}
		if int(code) == exitDetached || int(code) == exitCancelled && ctx.Err() != nil {
			return code
		}
		worst = max(worst, int(code))
	}
	if worst != 0 {
		return exitCode(worst)
	}
	return nil
}

// killOnTheWay waits until the jobs run, then a moment, then kills the leader in front of the user.
func (a *app) killOnTheWay(ctx context.Context, cluster *devCluster, client *rpc.Client, refs []*wire.JobRef, after time.Duration) {
	_, err := await(ctx, client, refs, true, func(i *wire.JobInfo) bool { return i.GetStartedAt() != 0 || over(i) }, nil)
	if err != nil {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(after):
	}
	name, err := cluster.killLeader(ctx, func(ctx context.Context) (string, error) { return leaderOf(ctx, client) })
	if err != nil {
		fmt.Fprintf(a.io.err, "-- muster dev: could not kill the leader: %v --\n", err)
		return
	}
	fmt.Fprintf(a.io.err, "-- muster dev: kill -9 of %s, the leader --\n", name)
	killed := time.Now()
	for ctx.Err() == nil {
		if _, err := client.ListNodes(ctx, &wire.ListNodesRequest{}); err == nil {
			if leader, err := leaderOf(ctx, client); err == nil {
				fmt.Fprintf(a.io.err, "-- muster dev: %s leads, %d ms after the kill --\n", cluster.nameOf(leader), time.Since(killed).Milliseconds())
				return
			}
		}
	}
}

func (c *devCluster) nameOf(address string) string {
	for _, a := range c.all() {
		if a.rpc == address {
			return a.name
		}
	}
	return address
}

// ready waits until a leader answers and all workers may get work.
func (c *devCluster) ready(ctx context.Context) (*rpc.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, devReadyWithin)
	defer cancel()
	client, err := dialServers(c.addresses(), rpc.Options{Patience: -1}, nil)
	if err != nil {
		return nil, err
	}
	ready := make(chan error, 1)
	go func() { ready <- c.allReady(ctx, client) }()
	for {
		select {
		case err := <-ready:
			if err == nil {
				return client, nil
			}
			client.Close()
			return nil, fmt.Errorf("the dev cluster isn't ready after %s: %w", devReadyWithin, err)
		case <-time.After(50 * time.Millisecond):
			if a := c.failing(); a != nil {
				cancel()
				<-ready
				client.Close()
				return nil, muster.Errorf(muster.KindError, "%s does not come up: %s", a.name, a.lastWords())
			}
		}
	}
}

func (c *devCluster) allReady(ctx context.Context, client *rpc.Client) error {
	for ctx.Err() == nil {
		reply, err := client.ListNodes(ctx, &wire.ListNodesRequest{})
		if err != nil {
			return err
		}
		ready := 0
		for _, n := range reply.GetNodes() {
			if n.GetState() == muster.NodeReady.String() {
				ready++
			}
		}
		if ready >= c.options.workers {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// leaderOf asks who leads.
func leaderOf(ctx context.Context, client *rpc.Client) (string, error) {
	reply, err := client.ListServers(ctx, &wire.ListServersRequest{Stale: true})
	if err != nil {
		return "", err
	}
	for _, s := range reply.GetServers() {
		if s.GetLeader() && s.GetError() == "" {
			return s.GetAddress(), nil
		}
	}
	return "", errors.New("no server leads just now")
}

func (a *app) devStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "the processes of the running muster dev", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			record, err := readDevRecord()
			if err != nil {
				return err
			}
			var agents []devAgentStatus
			if err := record.call(cmd.Context(), "GET", "/status", nil, &agents); err != nil {
				return err
			}
			l := listing{items: agents}
			for _, s := range agents {
				l.names = append(l.names, s.Name)
			}
			l.table = func() table {
				t := table{header: []string{"NAME", "ROLE", "PID", "ADDRESS", "SIDE", "RESTARTS", "LOG"}, state: -1}
				for _, s := range agents {
					role, pid := s.Role, strconv.Itoa(s.Pid)
					if s.Leader {
						role = "leader"
					}
					if s.Pid == 0 {
						pid = "down"
					}
					t.rows = append(t.rows, []string{s.Name, role, pid, s.Address, s.Side, strconv.Itoa(s.Restarts), s.Log})
				}
				return t
			}
			return a.print(l)
		},
	}
	a.outputFlags(cmd)
	return cmd
}

func (a *app) devVerb(use, short string, args cobra.PositionalArgs, method, path, said string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: usageArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			record, err := readDevRecord()
			if err != nil {
				return err
			}
			query := url.Values{}
			if len(args) == 1 {
				name := args[0]
				if _, err := strconv.Atoi(name); err == nil {
					name = "w" + name
				}
				query.Set("name", name)
			}
			var answer string
			if err := record.call(cmd.Context(), method, path, query, &answer); err != nil {
				return err
			}
			fmt.Fprintf(a.io.err, "muster dev: "+said+"\n", answer)
			return nil
		},
	}
}
