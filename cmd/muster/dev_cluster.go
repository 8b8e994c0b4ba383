package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config"
)

// devOptions is what `muster dev` was asked for.
type devOptions struct {
	servers, workers int
	gpus             int
	gpuModel         string
	cores            int
	memory           string
	dir              string // of everything
	temporary        bool   // made for this cluster alone
	http             string // of s1
	restart          bool
}

// devCluster is the servers and workers of a `muster dev`, each a child process of its own, so that kill -9 is real.
type devCluster struct {
	options devOptions
	binary  string
	join    []cty.Value // the servers, for gossip

	forks chan func() // see forker

	mu       sync.Mutex
	agents   []*devAgent // the servers, then the workers; more workers may come
	stopping bool
	wait     sync.WaitGroup

	sides     [][]string // of a network that is cut: see partition
	cutNumber int        // of the newest order that cuts or heals it
}

// devAgent is one child: a server s1… or a worker w1….
type devAgent struct {
	name   string
	dir    string
	server bool
	rpc    string
	gossip string
	http   string
	socket string // of the API

	mu       sync.Mutex
	process  *os.Process
	restarts int
	ends     int // how often its process ended
	pipe     *cutPipe
}

const devRestartDelay = time.Second

// newDevCluster chooses ports and writes each agent's file.
func newDevCluster(options devOptions) (*devCluster, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &devCluster{options: options, binary: binary, forks: make(chan func())}
	ports, err := freePorts((options.servers + options.workers) * 3)
	if err != nil {
		return nil, err
	}
	next := func() int { p := ports[0]; ports = ports[1:]; return p }
	type server struct{ rpc, gossip, http int }
	var servers []server
	for i := range options.servers {
		old := c.earlier(fmt.Sprintf("s%d", i+1)).Ports
		s := server{cmp.Or(old.RPC, next()), cmp.Or(old.Gossip, next()), cmp.Or(old.HTTP, next())}
		if i == 0 && options.http != "" {
			if s.http, err = loopbackPort(options.http); err != nil {
				return nil, err
			}
		}
		servers = append(servers, s)
		c.join = append(c.join, cty.StringVal(loopback(s.gossip)))
	}
	checkpoints := filepath.Join(options.dir, "checkpoints")
	if err := os.MkdirAll(checkpoints, 0o700); err != nil {
		return nil, err
	}
	others := c.join
	if len(servers) == 1 {
		others = nil // one that expects nobody else and is told whom to join would only join
	}
	for i, s := range servers {
		a := c.agent(fmt.Sprintf("s%d", i+1), true, s.rpc, s.gossip)
		a.http = loopback(s.http)
		err := a.write(others, map[string]int{"rpc": s.rpc, "gossip": s.gossip, "http": s.http}, func(body *hclwrite.Body) {
			block := body.AppendNewBlock("server", nil).Body()
			block.SetAttributeValue("expect", cty.NumberIntVal(int64(options.servers)))
			block.SetAttributeValue("voters", cty.NumberIntVal(int64(options.servers)))
			block.SetAttributeValue("checkpoints", cty.StringVal(checkpoints))
		})
		if err != nil {
			return nil, err
		}
	}
	for range options.workers {
		if err := c.writeWorker(next(), next(), next()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// earlier is the file of an agent in a directory that an earlier cluster left: its servers know each other by their addresses.
func (c *devCluster) earlier(name string) *config.Config {
	if old, _ := config.Load((&devAgent{dir: filepath.Join(c.options.dir, name)}).file()); old != nil {
		return old
	}
	return new(config.Config)
}

// writeWorker makes the next worker, which listens on these ports unless it had others before.
func (c *devCluster) writeWorker(port, gossip, http int) error {
	i := len(c.agents) - c.options.servers
	name := fmt.Sprintf("w%d", i+1)
	old := c.earlier(name).Ports
	port, gossip, http = cmp.Or(old.RPC, port), cmp.Or(old.Gossip, gossip), cmp.Or(old.HTTP, http)
	a := c.agent(name, false, port, gossip)
	a.http = loopback(http)
	return a.write(c.join, map[string]int{"rpc": port, "gossip": gossip, "http": http}, func(body *hclwrite.Body) {
		block := body.AppendNewBlock("worker", nil).Body()
		block.SetAttributeValue("allow_root", cty.BoolVal(os.Getuid() == 0))
		block.SetAttributeValue("port_range", cty.StringVal(devPorts(i, c.options.workers)))
		gpus := block.AppendNewBlock("gpus", nil).Body()
		gpus.SetAttributeValue("simulate", cty.NumberIntVal(int64(c.options.gpus)))
		gpus.SetAttributeValue("model", cty.StringVal(c.options.gpuModel))
		gpus.SetAttributeValue("cores", cty.NumberIntVal(int64(c.options.cores)))
		gpus.SetAttributeValue("memory", cty.StringVal(c.options.memory))
	})
}

// addWorker starts one more worker and gives its name.
func (c *devCluster) addWorker(ctx context.Context) (string, error) {
	ports, err := freePorts(3)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return "", errors.New("this dev cluster is ending")
	}
	if err := c.writeWorker(ports[0], ports[1], ports[2]); err != nil {
		return "", err
	}
	a := c.agents[len(c.agents)-1]
	c.wait.Go(func() { c.keep(ctx, a) })
	return a.name, nil
}

// all lists the agents.
func (c *devCluster) all() []*devAgent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.agents)
}

func (c *devCluster) agent(name string, server bool, rpc, gossip int) *devAgent {
	dir := filepath.Join(c.options.dir, name)
	a := &devAgent{name: name, dir: dir, server: server, rpc: loopback(rpc), gossip: loopback(gossip)}
	if server {
		a.socket = filepath.Join(dir, "api.sock")
	}
	c.agents = append(c.agents, a)
	return a
}

// loopbackPort reads --http: a port, on loopback where a host is named.
func loopbackPort(address string) (int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		host, text = "", address
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 || host != "" && host != "localhost" && host != "127.0.0.1" {
		return 0, muster.Errorf(muster.KindUsage, "--http %q is no address of this machine's loopback, as in 127.0.0.1:4690", address)
	}
	return port, nil
}

// devPorts is a worker's part of the ports of tasks: all workers are on this machine.
func devPorts(worker, workers int) string {
	const low, all, atLeast = 20_000, 10_000, 40 // more workers may come
	part := max(1, all/max(workers, atLeast))
	first := low + worker*part%all
	return fmt.Sprintf("%d-%d", first, first+part-1)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePorts asks the system for so many ports at once: all are held until the last is known, so that none comes twice.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func (a *devAgent) file() string { return filepath.Join(a.dir, "agent.hcl") }
func (a *devAgent) log() string  { return filepath.Join(a.dir, "agent.log") }

func (a *devAgent) write(join []cty.Value, ports map[string]int, role func(*hclwrite.Body)) error {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	file := hclwrite.NewEmptyFile()
	body := file.Body()
	body.SetAttributeValue("name", cty.StringVal(a.name))
	body.SetAttributeValue("data_dir", cty.StringVal(a.dir))
	body.SetAttributeValue("bind", cty.StringVal("127.0.0.1"))
	body.SetAttributeValue("cluster", cty.StringVal("dev"))
	if len(join) > 0 {
		body.SetAttributeValue("join", cty.ListVal(join))
	}
	role(body)
	block := body.AppendNewBlock("ports", nil).Body()
	for _, name := range []string{"http", "rpc", "gossip"} {
		block.SetAttributeValue(name, cty.NumberIntVal(int64(ports[name])))
	}
	return os.WriteFile(a.file(), file.Bytes(), 0o600)
}

// start starts every agent; a child that ends is started again after a second, until stop.
func (c *devCluster) start(ctx context.Context) {
	go c.forker()
	for _, a := range c.all() {
		c.wait.Go(func() { c.keep(ctx, a) })
	}
}

// startAgain starts an agent that is down and would stay so (--no-restart).
func (c *devCluster) startAgain(ctx context.Context, name string) error {
	a, err := c.find(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping || c.options.restart || a.pid() != 0 {
		return fmt.Errorf("%s runs, or will again by itself", name)
	}
	c.wait.Go(func() { c.keep(ctx, a) })
	return nil
}

// forker starts all children from one OS thread that lives as long as they: the parent-death signal comes when the *thread*
// that forked ends, and the Go runtime ends threads as it likes.
func (c *devCluster) forker() {
	runtime.LockOSThread()
	for fork := range c.forks {
		fork()
	}
}

func (c *devCluster) fork(command *exec.Cmd) error {
	done := make(chan error)
	c.forks <- func() { done <- command.Start() }
	return <-done
}

func (c *devCluster) keep(ctx context.Context, a *devAgent) {
	for ctx.Err() == nil {
		if err := c.runOnce(ctx, a); err != nil {
			a.note("cannot start: " + err.Error())
		}
		if !c.options.restart {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(devRestartDelay):
			a.mu.Lock()
			a.restarts++
			a.mu.Unlock()
		}
	}
}

func (c *devCluster) runOnce(ctx context.Context, a *devAgent) error {
	log, err := os.OpenFile(a.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(c.binary, "agent", "--dev", "--config", a.file())
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = childAttributes()
	release, unplug, err := c.plug(a, command)
	if err != nil {
		return err
	}
	defer unplug()
	defer release()
	c.mu.Lock()
	if c.stopping {
		c.mu.Unlock()
		return nil
	}
	err = c.fork(command)
	release()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.process = command.Process
	a.mu.Unlock()
	err = command.Wait()
	a.mu.Lock()
	a.process = nil
	a.ends++
	a.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		a.note("ended: " + err.Error())
	}
	return nil
}

func (a *devAgent) note(text string) {
	if f, err := os.OpenFile(a.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintln(f, "-- muster dev:", text)
		f.Close()
	}
}

func (a *devAgent) pid() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process == nil {
		return 0
	}
	return a.process.Pid
}

// kill is kill -9 of an agent's process; of a worker's, with its supervisors and so their tasks, as when a machine loses power.
func (a *devAgent) kill() error {
	pid := a.pid()
	if pid == 0 {
		return fmt.Errorf("%s is not running", a.name)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if !a.server {
		killSupervisors(a.dir)
	}
	return nil
}

// killSupervisors kills the supervisors whose run directory lies in dir; their tasks die with them.
func killSupervisors(dir string) {
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return
	}
	for _, path := range processes {
		line, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		words := strings.Split(string(line), "\x00")
		if len(words) < 2 || words[1] != "supervise" || !strings.Contains(string(line), dir+string(filepath.Separator)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// stop ends everything and waits: workers with their tasks first, so that nothing is started again elsewhere, then servers.
func (c *devCluster) stop() {
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	for _, a := range c.all() {
		if pid := a.pid(); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if !a.server {
			killSupervisors(a.dir)
		}
	}
	c.wait.Wait()
	close(c.forks)
	for _, a := range c.all() {
		if !a.server {
			killSupervisors(a.dir) // one that its agent had forked just then
		}
	}
}

// failing gives an agent that ended twice, or once and stays so: it won't come up.
func (c *devCluster) failing() *devAgent {
	for _, a := range c.all() {
		a.mu.Lock()
		ends := a.ends
		a.mu.Unlock()
		if ends > 1 || ends == 1 && !c.options.restart {
			return a
		}
	}
	return nil
}

// lastWords gives the end of an agent's log, for when it doesn't come up: what it said before it ended.
func (a *devAgent) lastWords() string {
	body, err := os.ReadFile(a.log())
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	for i, line := range slices.Backward(lines) {
		if words, ok := strings.CutPrefix(line, "muster: "); ok {
			if i+1 < len(lines) && strings.HasPrefix(lines[i+1], " ") {
				words += ". " + strings.TrimSpace(lines[i+1])
			}
			return words
		}
	}
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// addresses are where clients reach the servers.
func (c *devCluster) addresses() []string {
	var out []string
	for _, a := range c.all() {
		if a.server {
			out = append(out, a.rpc)
		}
	}
	return out
}

func (c *devCluster) find(name string) (*devAgent, error) {
	for _, a := range c.all() {
		if a.name == name {
			return a, nil
		}
	}
	return nil, muster.Errorf(muster.KindNotFound, "there is no %s in this dev cluster", name)
}
