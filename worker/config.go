package worker

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
)

// Config says what a worker is. Zero values mean what their comment says.
type Config struct {
	Name    string // of the node; unique in the cluster
	Cluster string // the cluster's name, for messages; may be empty
	Version string // of this program, shown by `node show`

	DataDir string // journal, identity, task directories, logs; made with mode 0700
	RunDir  string // the supervisor's socket; short, made with mode 0700

	Listener      net.Listener        // of NodeLogs; closed by Run
	ServerOptions []grpc.ServerOption // of NodeLogs
	Address       string              // host:port that servers reach the listener by; "" = the listener's own
	IP            string              // that other ranks reach the node by; "" = Address's host

	Servers []string // RPC addresses to try; more are learnt and kept in DataDir
	Dial    func(ctx context.Context, address string) (grpc.ClientConnInterface, io.Closer, error)

	Labels []muster.Label // sorted by key
	Cost   int64          // micro-units of money an hour, for the whole node

	Simulate *Simulated // nil: the machine's own GPUs, cores and memory

	ReserveCores  muster.MilliCores // kept for the host
	ReserveMemory muster.Bytes
	PortLow       uint16 // range of ports for tasks; 0 = 20000
	PortHigh      uint16 // 0 = 29999

	AllowRoot bool // run tasks although the agent, and so each task, is root

	Binary string       // this program, for supervisors
	Logger hclog.Logger // nil = none
	// Metrics gets what the worker measures of itself; nil: nobody asks.
	Metrics *Metrics

	KeepFor time.Duration // how long logs and task directories stay after the end; 0 = 24 h

	// host stands in for the machine, in tests.
	host host
}

// Simulated is a machine that doesn't exist, for trying muster: announced for placement only.
type Simulated struct {
	GPUs       int
	Model      string       // "" = "H100"
	GPUMemory  muster.Bytes // of a GPU; 0 = 80 GiB
	MilliCores muster.MilliCores
	Memory     muster.Bytes
}

// The defaults of Simulated, as the agent file documents them.
const (
	simulatedModel     = "H100"
	simulatedGPUMemory = 80 * muster.GiB
	simulatedCores     = muster.MilliCores(64_000)
	simulatedMemory    = 512 * muster.GiB
)

// The defaults of Config.
const (
	defaultPortLow  = 20000
	defaultPortHigh = 29999
	defaultKeepFor  = 24 * time.Hour
)

// filled gives c with its defaults, or says what is wrong with it.
func (c Config) filled() (Config, error) {
	bad := func(format string, args ...any) (Config, error) {
		return c, muster.Errorf(muster.KindUsage, "worker: %s", fmt.Sprintf(format, args...))
	}
	if c.Name == "" {
		return bad("a node needs a name")
	}
	if c.DataDir == "" || c.RunDir == "" {
		return bad("node %s needs a data directory and a run directory", c.Name)
	}
	if c.Listener == nil || c.Dial == nil {
		return bad("node %s needs a listener and a way to dial servers", c.Name)
	}
	for _, dir := range []*string{&c.DataDir, &c.RunDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return bad("%v", err)
		}
		*dir = abs
	}
	if c.Address == "" {
		c.Address = c.Listener.Addr().String()
	}
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return bad("address %q is not host:port", c.Address)
	}
	if c.IP == "" {
		c.IP = host
	}
	if c.PortLow == 0 && c.PortHigh == 0 {
		c.PortLow, c.PortHigh = defaultPortLow, defaultPortHigh
	}
	if c.PortLow == 0 || c.PortHigh < c.PortLow {
		return bad("port range %d-%d is empty", c.PortLow, c.PortHigh)
	}
	c.Labels = slices.SortedFunc(slices.Values(c.Labels), func(a, b muster.Label) int { return strings.Compare(a.Key, b.Key) })
	if c.Simulate != nil {
		s := *c.Simulate
		if s.GPUs < 0 || s.GPUs > muster.MaxSlots {
			return bad("%d simulated GPUs: a node has 0 to %d", s.GPUs, muster.MaxSlots)
		}
		s.Model = orElse(s.Model, simulatedModel)
		s.GPUMemory = orElse(s.GPUMemory, simulatedGPUMemory)
		s.MilliCores = orElse(s.MilliCores, simulatedCores)
		s.Memory = orElse(s.Memory, simulatedMemory)
		c.Simulate = &s
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	c.Metrics = orElse(c.Metrics, NewMetrics())
	c.KeepFor = orElse(c.KeepFor, defaultKeepFor)
	return c, nil
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (c *Config) taskDir(id muster.AllocID) string {
	return filepath.Join(c.DataDir, "tasks", id.String())
}
func (c *Config) logDir(id muster.AllocID) string {
	return filepath.Join(c.DataDir, "logs", id.String())
}
