package cluster

import (
	"github.com/hashicorp/go-hclog"
)

// Observer is a worker's place in gossip: it hears which servers there are, and is not one.
type Observer struct{ gossip *gossip }

// Observe joins gossip as the worker called name. address is the host:port to bind, port 0 takes a free one.
func Observe(clusterID, name, address string, join []string, network Network, logger hclog.Logger) (*Observer, error) {
	c := Config{ClusterID: clusterID, GossipAddress: address, Join: join, Network: network, Logger: logger}.withDefaults()
	g, err := startGossip(c, member{ID: "worker/" + name})
	if err != nil {
		return nil, err
	}
	return &Observer{g}, nil
}

// Servers lists the RPC addresses of the servers that are alive.
func (o *Observer) Servers() []string {
	var out []string
	for _, m := range o.gossip.members() {
		out = append(out, m.RPC)
	}
	return out
}

// Changed wakes (at most one pending wake-up) when a member came, went or changed.
func (o *Observer) Changed() <-chan struct{} { return o.gossip.wake }

// Close leaves gossip.
func (o *Observer) Close() { o.gossip.close() }
