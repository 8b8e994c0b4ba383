package exec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhpc/muster"
)

// SupervisorConfig says where a supervisor works. The agent and its supervisors use the same one.
type SupervisorConfig struct {
	RunDir     string       // its socket and lock; short (a socket's path is at most 100 bytes), made with mode 0700
	StateDir   string       // where exits are kept until they are forgotten; "" = RunDir
	Node       string       // the node's name, for messages; "" = the host's
	Instance   string       // tells the nodes of one machine apart, in names of cgroups; "" = made from RunDir
	CgroupRoot string       // under which muster's cgroups are made, below the mount; "" = "muster"
	Plain      bool         // neither namespaces nor cgroups, as on a host that allows neither
	Logger     hclog.Logger // nil = none
}

// HostAbilities is what this host can do to keep tasks apart and to end them surely.
type HostAbilities struct {
	PidNamespace bool   // a killed supervisor takes all processes of its tasks along
	Cgroup       string // "v2", "v1" or "": none
	Limits       bool   // memory and cores are limited
	Fencing      string // "strong", or "weak: REASON"
}

// filled gives c with its defaults.
func (c SupervisorConfig) filled() (SupervisorConfig, error) {
	if c.RunDir == "" {
		return c, muster.Errorf(muster.KindUsage, "a supervisor needs a run directory")
	}
	dir, err := filepath.Abs(c.RunDir)
	if err != nil {
		return c, err
	}
	c.RunDir = dir
	if path := filepath.Join(dir, socketName); len(path) > 100 {
		return c, muster.Errorf(muster.KindUsage, "the path of the socket %s is longer than 100 bytes", path).
			WithHint("Choose a shorter run directory")
	}
	if c.StateDir == "" {
		c.StateDir = c.RunDir
	}
	if c.Node == "" {
		if c.Node, err = os.Hostname(); err != nil {
			c.Node = "this node"
		}
	}
	if c.Instance == "" {
		sum := sha256.Sum256([]byte(c.RunDir))
		c.Instance = hex.EncodeToString(sum[:6])
	}
	if c.CgroupRoot == "" {
		c.CgroupRoot = "muster"
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c, nil
}

// args is the command line by which StartSupervisor runs a supervisor; SuperviseArgs reads it.
func (c SupervisorConfig) args() []string {
	level := "info"
	if c.Logger != nil && c.Logger.GetLevel() != hclog.NoLevel && c.Logger.GetLevel() != hclog.Off {
		level = c.Logger.GetLevel().String()
	}
	args := []string{
		"supervise", "--run", c.RunDir, "--state", c.StateDir, "--node", c.Node, "--instance", c.Instance,
		"--cgroup", c.CgroupRoot, "--log", level,
	}
	if c.Plain {
		args = append(args, "--plain")
	}
	return args
}

// SuperviseArgs is the hidden verb `muster supervise`: args is what stands behind it. The log goes to out.
func SuperviseArgs(ctx context.Context, args []string, out io.Writer) error {
	dropInherited()
	var c SupervisorConfig
	flags := flag.NewFlagSet("supervise", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&c.RunDir, "run", "", "directory of the socket")
	flags.StringVar(&c.StateDir, "state", "", "directory of the exits")
	flags.StringVar(&c.Node, "node", "", "name of the node")
	flags.StringVar(&c.Instance, "instance", "", "tells the nodes of a machine apart")
	flags.StringVar(&c.CgroupRoot, "cgroup", "", "cgroup below the mount")
	flags.BoolVar(&c.Plain, "plain", false, "neither namespaces nor cgroups")
	level := flags.String("log", "info", "level of the log")
	if err := flags.Parse(args); err != nil {
		return muster.Errorf(muster.KindUsage, "%v", err)
	}
	if flags.NArg() > 0 {
		return muster.Errorf(muster.KindUsage, "unexpected argument %q", flags.Arg(0))
	}
	l := hclog.LevelFromString(*level)
	if l == hclog.NoLevel {
		return muster.Errorf(muster.KindUsage, "there is no log level %q", *level)
	}
	c.Logger = hclog.New(&hclog.LoggerOptions{Name: "supervisor", Level: l, Output: out})
	return Supervise(ctx, c)
}

// identity tells a process from every other that ever had its pid.
type identity struct {
	pid   int
	start uint64 // in clock ticks since boot
}

func (i identity) String() string { return fmt.Sprintf("%d-%d", i.pid, i.start) }

func parseIdentity(s string) (identity, bool) {
	var i identity
	if _, err := fmt.Sscanf(s, "%d-%d", &i.pid, &i.start); err != nil || i.String() != s || i.pid <= 0 {
		return identity{}, false
	}
	return i, true
}
