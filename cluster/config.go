package cluster

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Config is all that a server is told. Zero fields get the defaults named below.
type Config struct {
	// DataDir holds everything that must survive: the server's id, the raft log, snapshots. One process at a time uses it, and
	// it belongs to one cluster for ever.
	DataDir string
	// Name is what people call this server; the host name, usually.
	Name string
	// ClusterID is the cluster's name. Gossip and data directories of another one are refused.
	ClusterID string
	// Version of the binary, for listings.
	Version string

	// RPCAddress is the host:port by which others reach this server's RPC port; raft shares it.
	RPCAddress string
	// HTTPAddress is the host:port of the HTTP API, for others to know.
	HTTPAddress string
	// RaftListener gives the connections that begin a raft conversation: the first result of Split.
	RaftListener net.Listener
	// TLS secures raft's connections, both ways; nil: plaintext.
	TLS *tls.Config

	// GossipAddress is the host:port that gossip binds, over TCP and UDP; port 0 takes a free one.
	GossipAddress string
	// GossipAdvertise is the host:port that others reach it by; "" = as bound.
	GossipAdvertise string
	// Join lists gossip addresses of other servers. They are tried until one answers, and again every 30 s.
	Join []string

	// Expect is how many servers must see each other before a new cluster is made of them. Default 1; a server that expects only
	// itself and has somebody to join makes no cluster, it waits to be taken into theirs.
	Expect int
	// Voters is how many servers vote at most; more are kept as non-voters, ready to be promoted. Default: Expect.
	Voters int
	// Timing is raft's: LAN (the default) or WAN.
	Timing Timing

	// Snapshots says when the log is compacted. For tests: zero fields are what a cluster needs.
	Snapshots Snapshots

	// Logger gets everything that is worth a line. Default: none.
	Logger hclog.Logger
	// Fatal is called, once, when this process must end: its disk hangs or fails, or raft is stuck. It must not return before
	// it has arranged that the process exits; no data is safe to acknowledge after it.
	Fatal func(error)

	// Network is how others are reached; the zero value: the network as it is.
	Network Network

	// Clock is for tests; zero functions are the system's.
	Clock Clock

	// WrapLogs puts a layer between raft and its log on disk, below the watch that ends a process whose disk hangs or fails;
	// nil: none. For tests: their disks hang and fail.
	WrapLogs func(raft.LogStore) raft.LogStore

	wrapTransport func(raft.Transport) raft.Transport // tests hold messages back
}

// Snapshots is when a snapshot is made, and what of the log stays beside it for servers that lag.
type Snapshots struct {
	Entries  uint64        // of log since the last one; default 32,768
	Trailing uint64        // entries that stay; default 10,240
	Every    time.Duration // how often it is looked, up to twice that; default 30 s
}

func (s Snapshots) withDefaults() Snapshots {
	return Snapshots{cmp.Or(s.Entries, snapshotEntries), cmp.Or(s.Trailing, trailingLogs), cmp.Or(s.Every, snapshotEvery)}
}

// Timing is how soon raft takes a silent leader for dead.
type Timing struct {
	Heartbeat time.Duration // a follower without word for this long stands for election
	Election  time.Duration // a candidate without a majority for this long tries again
	Lease     time.Duration // a leader without a majority for this long steps down
}

// The timings. LAN is the least that is sound with busy cores: elections take 0.3 to 0.7 s. WAN is for links of up to 100 ms.
var (
	LAN = Timing{250 * time.Millisecond, 250 * time.Millisecond, 125 * time.Millisecond}
	WAN = Timing{time.Second, time.Second, 500 * time.Millisecond}
)

// ParseTiming reads the names that the agent's file uses: "lan" or "", and "wan".
func ParseTiming(name string) (Timing, error) {
	switch name {
	case "", "lan":
		return LAN, nil
	case "wan":
		return WAN, nil
	}
	return Timing{}, fmt.Errorf("raft timing %q is neither \"lan\" nor \"wan\"", name)
}

func (c Config) withDefaults() Config {
	if c.Expect == 0 {
		c.Expect = 1
	}
	if c.Voters == 0 {
		c.Voters = c.Expect
	}
	if c.Timing == (Timing{}) {
		c.Timing = LAN
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	c.Clock, c.Snapshots = c.Clock.withDefaults(), c.Snapshots.withDefaults()
	return c
}

// Validate says the first thing that is wrong with c.
func (c Config) Validate() error {
	switch {
	case c.DataDir == "":
		return fmt.Errorf("server: no data directory")
	case c.ClusterID == "":
		return fmt.Errorf("server: no cluster name")
	case len(c.ClusterID) > maxNameLength:
		return fmt.Errorf("server: cluster name %q is longer than %d bytes", c.ClusterID, maxNameLength)
	case len(c.Name) > maxNameLength || strings.ContainsAny(c.Name, "\x00\n"):
		return fmt.Errorf("server: name %q is longer than %d bytes or not one line", c.Name, maxNameLength)
	case c.RaftListener == nil:
		return fmt.Errorf("server: no listener for raft")
	case c.Fatal == nil:
		return fmt.Errorf("server: nobody to tell when it must end")
	case c.Expect < 1 || c.Expect > maxExpect:
		return fmt.Errorf("server: expect = %d: a cluster has 1 to %d servers to begin with; 3 survive the loss of one", c.Expect, maxExpect)
	case c.Voters < c.Expect:
		return fmt.Errorf("server: voters = %d is less than expect = %d", c.Voters, c.Expect)
	case c.Timing.Lease > c.Timing.Heartbeat || c.Timing.Election < c.Timing.Heartbeat:
		return fmt.Errorf("server: raft timing %+v: lease ≤ heartbeat ≤ election must hold", c.Timing)
	}
	for what, address := range map[string]string{"RPC": c.RPCAddress, "gossip": c.GossipAddress} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("server: %s address %q is not of the form host:port", what, address)
		}
	}
	return nil
}

const (
	maxNameLength = 128 // so that gossip's 512 bytes of node meta hold name, addresses and flags
	maxExpect     = 9
)
