package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
)

// Gossip's own rhythm. It finds servers and says what they are; nothing is decided by its silence.
const (
	rejoinEvery   = 30 * time.Second // after a long partition both sides have forgotten each other for ever
	retryJoin     = time.Second      // until somebody has answered
	leaveTimeout  = 300 * time.Millisecond
	updateTimeout = 300 * time.Millisecond
)

// member is what a server says of itself in gossip: at most 512 bytes of JSON.
type member struct {
	ID   string `json:"-"`           // its name in memberlist
	Name string `json:"n,omitempty"` // for people
	RPC  string `json:"r"`
	HTTP string `json:"h,omitempty"`
	New  bool   `json:"e,omitempty"` // it has no raft state: it belongs to no cluster yet
	Sees string `json:"s,omitempty"` // the founders it would make a new cluster of: see founders
	Ver  string `json:"v,omitempty"`

	gossip string // host:port
}

// gossip finds the other servers of this cluster. Each member's name is its server id; the label is the cluster's name, so
// that members of another cluster are not heard.
type gossip struct {
	list   *memberlist.Memberlist
	logger hclog.Logger
	wake   chan struct{} // something about a member changed
	stop   chan struct{}
	wait   sync.WaitGroup
	join   []string

	at string // where other servers reach this one's gossip

	mu     sync.Mutex
	self   member
	alive  map[string]member // by id, this one included
	clock  Clock
	clocks map[string]heardClock
}

func startGossip(c Config, self member) (*gossip, error) {
	g := &gossip{logger: c.Logger.Named("gossip"), wake: make(chan struct{}, 1), stop: make(chan struct{}), join: c.Join, self: self, alive: map[string]member{}, clock: c.Clock, clocks: map[string]heardClock{}}
	m := memberlist.DefaultLANConfig()
	m.Name = self.ID
	m.Label = c.ClusterID
	m.DeadNodeReclaimTime = 30 * time.Second
	m.ProbeInterval, m.SuspicionMult = 500*time.Millisecond, 3
	m.GossipInterval = 100 * time.Millisecond
	m.TCPTimeout = 3 * time.Second
	m.MsgpackUseNewTimeFormat = true
	m.Delegate, m.Events, m.Ping = g, g, g
	m.Logger = g.logger.StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true})
	var err error
	if m.BindAddr, m.BindPort, err = hostPort(c.GossipAddress); err != nil {
		return nil, err
	}
	if m.Transport, m.BindPort, err = c.Network.transport(m.BindAddr, m.BindPort, m.Logger); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	m.AdvertisePort = m.BindPort
	if c.GossipAdvertise != "" {
		if m.AdvertiseAddr, m.AdvertisePort, err = hostPort(c.GossipAdvertise); err != nil {
			return nil, err
		}
	}
	if meta, err := json.Marshal(self); err != nil || len(meta) > memberlist.MetaMaxSize-16 {
		return nil, fmt.Errorf("gossip: this server's name and addresses are longer than the %d bytes that gossip carries; shorten them", memberlist.MetaMaxSize-16)
	}
	if g.list, err = memberlist.Create(m); err != nil {
		if m.Transport != nil {
			_ = m.Transport.Shutdown() // nothing went over it
		}
		return nil, fmt.Errorf("gossip: %w", err)
	}
	g.at = g.list.LocalNode().Address()
	g.wait.Go(g.keepJoining)
	return g, nil
}

func hostPort(address string) (string, int, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("gossip address %q is not of the form host:port", address)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("gossip address %q: %q is not a port", address, port)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, int(n), nil
}

// keepJoining joins until somebody answers, then again every 30 s whoever was ever told or heard of.
func (g *gossip) keepJoining() {
	known := map[string]bool{}
	for _, address := range g.join {
		known[address] = true
	}
	for {
		for _, m := range g.members() {
			known[m.gossip] = true
		}
		delete(known, g.at)
		addresses := make([]string, 0, len(known))
		for address := range known {
			addresses = append(addresses, address)
		}
		slices.Sort(addresses)
		pause := rejoinEvery
		if len(addresses) > 0 {
			if n, err := g.list.Join(addresses); n == 0 {
				g.logger.Debug("no other server answers yet", "tried", addresses, "error", err)
				pause = retryJoin
			}
		}
		select {
		case <-g.stop:
			return
		case <-time.After(pause):
		}
	}
}

// members lists the servers that are alive, this one included, by id.
func (g *gossip) members() []member {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]member, 0, len(g.alive))
	for _, m := range g.alive {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b member) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// say changes what this server says of itself.
func (g *gossip) say(isNew bool, sees string) {
	g.mu.Lock()
	same := g.self.New == isNew && g.self.Sees == sees
	g.self.New, g.self.Sees = isNew, sees
	g.mu.Unlock()
	if same {
		return
	}
	// The news spreads whether or not this waits for it; without a limit it may wait for ever, when the others have just gone.
	if err := g.list.UpdateNode(updateTimeout); err != nil {
		g.logger.Debug("the others may not have heard yet what changed here", "error", err)
	}
}

// close leaves, so that the others need not find out by themselves.
func (g *gossip) close() {
	close(g.stop)
	g.list.Leave(leaveTimeout)
	g.list.Shutdown()
	g.wait.Wait()
}

func (g *gossip) changed() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// NodeMeta is memberlist's question what to say of this server.
func (g *gossip) NodeMeta(int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	meta, err := json.Marshal(g.self)
	if err != nil {
		return nil
	}
	return meta
}

// The rest of memberlist.Delegate is not used: servers gossip nothing but their meta.

func (g *gossip) NotifyMsg([]byte)                {}
func (g *gossip) GetBroadcasts(int, int) [][]byte { return nil }
func (g *gossip) LocalState(bool) []byte          { return nil }
func (g *gossip) MergeRemoteState([]byte, bool)   {}

// NotifyJoin, NotifyUpdate and NotifyLeave are memberlist's events. It changes its nodes under a lock that is held here, so what
// is needed of them is copied.
func (g *gossip) NotifyJoin(node *memberlist.Node) { g.NotifyUpdate(node) }

func (g *gossip) NotifyUpdate(node *memberlist.Node) {
	var m member
	g.mu.Lock()
	defer g.mu.Unlock()
	if json.Unmarshal(node.Meta, &m) == nil && m.RPC != "" {
		m.ID, m.gossip = node.Name, node.Address()
		g.alive[m.ID] = m
	} else {
		delete(g.alive, node.Name) // not a server of ours
	}
	g.changed()
}

func (g *gossip) NotifyLeave(node *memberlist.Node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.alive, node.Name)
	g.changed()
}
