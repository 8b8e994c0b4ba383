// Package config is the agent's file, the client's contexts, and where a client finds its cluster.
//
// The agent's file is HCL: one file, or a folder of them read in name order, a later one over an earlier. Words that are unknown
// are errors at their line, and what is part of the contract but not built yet is refused.
package config

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-sockaddr/template"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

// Config is what an agent is configured with. The names are the file's.
type Config struct {
	Name     string   // of this machine in the cluster; default: the host's name
	DataDir  string   // absolute; everything the agent keeps
	Bind     string   // the IP that listeners use and others reach; in the file a go-sockaddr template. Default 127.0.0.1
	Cluster  string   // its name: gossip and data of another cluster are refused
	Join     []string // gossip addresses of other agents, "host:port"
	Insecure bool     // listen beyond loopback without certificates
	Log      Log
	Server   *Server // nil: no server here
	Worker   *Worker // nil: no worker here
	Raft     Raft
	Ports    Ports
}

// Log says how the agent logs, to standard error.
type Log struct {
	Level  string // trace, debug, info (default), warn, error
	Format string // text (default), json
}

// Server makes the agent a server.
type Server struct {
	Expect int // servers that must see each other before they make a new cluster; default 1
	Voters int // servers that vote at most; default: Expect
	// Checkpoints is a folder that all nodes see, absolute, for what jobs keep over their attempts; "": each node's own disk.
	Checkpoints string
}

// Worker makes the agent a worker.
type Worker struct {
	CostPerHour int64 // micro-units of money, of the whole node; default 0
	Labels      map[string]string
	GPUs        GPUs
	Reserve     Reserve
	AllowRoot   bool   // run tasks as root when the agent is root
	GPUIDs      string // auto
	PortRange          // of tasks; default 20000-29999
}

// PortRange is a range of ports, both ends in it.
type PortRange struct{ PortLow, PortHigh uint16 }

// GPUs is a machine that doesn't exist, for trying muster: announced for placement only.
type GPUs struct {
	Simulate int               // GPUs; 0: the machine's own
	Model    string            // default H100
	Cores    muster.MilliCores // default 64
	Memory   muster.Bytes      // default 512 GiB
}

// Reserve is kept for the host.
type Reserve struct {
	Cores  muster.MilliCores
	Memory muster.Bytes
}

// Raft is how servers agree.
type Raft struct {
	Timing string // lan (default), wan
}

// Ports are those of the agent's listeners; 0 lets the system choose.
type Ports struct {
	HTTP   int // API, metrics; default 4690
	RPC    int // gRPC and Raft; default 4691
	Gossip int // default 4692
}

// The default ports.
const (
	DefaultHTTPPort   = 4690
	DefaultRPCPort    = 4691
	DefaultGossipPort = 4692
)

// Defaults is a configuration as an empty file gives it.
func Defaults() Config {
	name, _ := os.Hostname() // "" is refused by Validate, which says to name the machine
	return Config{
		Name:  name,
		Bind:  "127.0.0.1",
		Log:   Log{Level: "info", Format: "text"},
		Raft:  Raft{Timing: "lan"},
		Ports: Ports{HTTP: DefaultHTTPPort, RPC: DefaultRPCPort, Gossip: DefaultGossipPort},
	}
}

func newServer() any { return Server{Expect: 1} }

func newWorker() any {
	return Worker{
		GPUs:   GPUs{Model: "H100", Cores: 64_000, Memory: 512 * muster.GiB},
		GPUIDs: "auto", PortRange: PortRange{PortLow: 20000, PortHigh: 29999},
	}
}

// Load reads the agent's file, or all *.hcl of a folder in name order, and checks it. The configuration is nil when there is
// an error.
func Load(path string) (*Config, hcl.Diagnostics) {
	paths, err := filesAt(path)
	if err != nil {
		return nil, hcl.Diagnostics{schema.About(path, "No configuration", "%s.", err)}
	}
	read := Defaults()
	d := &schema.Decoder{Root: &agentTable, Hints: agentHints}
	for _, p := range paths {
		src, err := os.ReadFile(p)
		if err != nil {
			d.Diags = append(d.Diags, schema.About(p, "No configuration", "%s.", err))
			continue
		}
		body, diags := schema.Parse(p, src)
		d.Diags = append(d.Diags, diags...)
		if body != nil {
			d.Source = src
			d.Decode(body, &agentTable, "", &read)
		}
	}
	if !d.Diags.HasErrors() {
		read.finish(d, path)
	}
	if d.Diags.HasErrors() {
		return nil, d.Diags
	}
	return &read, d.Diags
}

// IsAgentFile says whether a file is an agent's rather than one of jobs: a server or a worker block stands in it.
func IsAgentFile(name string, src []byte) bool {
	body, _ := schema.Parse(name, src)
	return body != nil && slices.ContainsFunc(body.Blocks, func(b *hclsyntax.Block) bool { return b.Type == "server" || b.Type == "worker" })
}

// WriteText prints diagnostics with the lines of the files they are about, wrapped at width (0: not).
func WriteText(w io.Writer, diags hcl.Diagnostics, width uint, color bool) error {
	sources := map[string][]byte{}
	for _, d := range diags {
		if d.Subject == nil || sources[d.Subject.Filename] != nil {
			continue
		}
		if src, err := os.ReadFile(d.Subject.Filename); err == nil {
			sources[d.Subject.Filename] = src
		}
	}
	return schema.WriteText(w, sources, diags, width, color)
}

func filesAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	paths, err := filepath.Glob(filepath.Join(globEscape.Replace(path), "*.hcl")) // sorted
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s has no file that ends in .hcl", path)
	}
	return paths, err
}

var machineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// finish makes addresses of what the file says, and checks what no single argument shows.
func (c *Config) finish(d *schema.Decoder, path string) {
	need := func(place, detail string) {
		if d.Place(place).Filename == "" {
			d.Diags = append(d.Diags, schema.About(path, "Missing argument", "%s: %s", path, detail))
			return
		}
		d.Error(place, "Wrong value for "+place, "%s", detail)
	}
	if !machineName.MatchString(c.Name) {
		need("name", "name = \"…\" must say what this machine is called: at most 63 letters, digits and - . _")
	}
	if c.Cluster == "" {
		need("cluster", "cluster = \"…\" must name the cluster.")
	}
	if !filepath.IsAbs(c.DataDir) {
		need("data_dir", "data_dir = \"/…\" must be an absolute path, such as /var/lib/muster.")
	}
	if c.Server == nil && c.Worker == nil {
		d.Diags = append(d.Diags, schema.About(path, "Neither server nor worker", "%s has no server block and no worker block: one of them must stand.", path))
	}
	c.bind(d)
	for i, address := range c.Join {
		full, err := withPort(address, DefaultGossipPort)
		if err != nil {
			d.Error("join["+strconv.Itoa(i)+"]", "Wrong value for join", "%s.", err)
		}
		c.Join[i] = full
	}
	c.ports(d)
	if s := c.Server; s != nil {
		if s.Expect < 1 || s.Expect > 9 {
			d.Error("server.expect", "Wrong value for expect", "\"expect\" is a number of servers from 1 to 9; 3 or 5 survive the loss of one or two.")
		}
		if _, said := d.Places["server.voters"]; !said {
			s.Voters = s.Expect
		} else if s.Voters < 1 || s.Voters > 9 {
			d.Error("server.voters", "Wrong value for voters", "\"voters\" is a number of servers from 1 to 9.")
		}
		if s.Checkpoints != "" && !filepath.IsAbs(s.Checkpoints) {
			d.Error("server.checkpoints", "Wrong value for checkpoints", "\"checkpoints\" is the absolute path of a folder that all nodes see.")
		}
	}
	c.worker(d)
}

func (c *Config) worker(d *schema.Decoder) {
	w := c.Worker
	if w == nil {
		return
	}
	for key := range w.Labels { // errors are sorted by place
		if !muster.ValidLabelKey(key) {
			d.Error("worker.labels."+key, "Wrong label",
				"%q can't be the key of a label: it is at most 63 letters, digits and _ . / -, and begins with a letter.", key)
		}
	}
	if w.GPUs.Simulate < 0 || w.GPUs.Simulate > muster.MaxSlots {
		d.Error("worker.gpus.simulate", "Wrong value for simulate", "\"simulate\" is a number of GPUs from 0 to %d.", muster.MaxSlots)
	}
	schema.Sort(d.Diags)
}

func parsePortRange(s string) (any, error) {
	low, high, ok := strings.Cut(s, "-")
	a, err1 := strconv.ParseUint(strings.TrimSpace(low), 10, 16)
	b, err2 := strconv.ParseUint(strings.TrimSpace(high), 10, 16)
	if !ok || err1 != nil || err2 != nil || a < 1024 || b < a {
		return PortRange{}, fmt.Errorf("%q is not a range of ports from 1024 to 65535, as in \"20000-29999\"", s)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}

// bind turns the template into one IP that others reach.
func (c *Config) bind(d *schema.Decoder) {
	wrong := func(format string, args ...any) { d.Error("bind", "Wrong value for bind", format, args...) }
	text, err := template.Parse(c.Bind)
	if err != nil {
		wrong("%q is no IP and no template of one, such as \"{{ GetPrivateIP }}\": %s.", c.Bind, err)
		return
	}
	ip, err := netip.ParseAddr(strings.TrimSpace(text))
	switch {
	case text == "":
		wrong("%s finds no address on this machine: write the IP itself.", c.Bind)
	case err != nil:
		wrong("%q is not one IP, such as \"10.0.0.7\" or \"{{ GetPrivateIP }}\".", text)
	case ip.IsUnspecified():
		wrong("%s is every address, and others must be told one to reach this machine by. Say  \"{{ GetPrivateIP }}\"", ip)
	case !ip.IsLoopback() && !c.Insecure:
		wrong("%s can be reached from other machines, and there are no certificates yet: anyone there could run jobs. "+
			"In a network that you trust say  insecure = true", ip)
	default:
		c.Bind = ip.String()
	}
}

func (c *Config) ports(d *schema.Decoder) {
	seen := map[int]string{}
	for _, p := range []struct {
		name string
		port int
	}{{"http", c.Ports.HTTP}, {"rpc", c.Ports.RPC}, {"gossip", c.Ports.Gossip}} {
		switch {
		case p.port < 0 || p.port > 65535:
			d.Error("ports."+p.name, "Wrong value for "+p.name, "%d is no port: it is from 1 to 65535, or 0 for one that the system chooses.", p.port)
		case p.port != 0 && seen[p.port] != "":
			d.Error("ports."+p.name, "Port given twice", "%d is the port of %s already.", p.port, seen[p.port])
		}
		seen[p.port] = p.name
	}
}

// withPort completes "host" to "host:port".
func withPort(address string, port int) (string, error) {
	host, given, err := net.SplitHostPort(address)
	if err != nil {
		host, given = strings.Trim(address, "[]"), strconv.Itoa(port)
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", fmt.Errorf("%q is not HOST or HOST:PORT", address)
		}
	}
	if n, err := strconv.ParseUint(given, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, " /\t") {
		return "", fmt.Errorf("%q is not HOST or HOST:PORT", address)
	}
	return net.JoinHostPort(host, given), nil
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
