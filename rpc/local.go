// Package rpc is how servers, workers and clients talk: gRPC services, leader forwarding (forward.go), who may do what
// (one interceptor), the HTTP API and the client.
package rpc

import (
	"context"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// Local is this server's own part of the cluster, as the services need it; cluster.Server is one. Errors carry a
// *muster.Error; KindUnavailable means that the same request may be tried again, here or at the leader.
type Local interface {
	// Propose commits a request at the leader and waits until it is applied here. Not the leader: KindUnavailable, and
	// nothing was done. An unknown outcome (leadership lost on the way) is KindUnavailable too: requests are idempotent.
	Propose(ctx context.Context, command *wire.Command) (*wire.ProposeReply, error)
	// ReadIndex gives, at the leader, the index that a linearizable read must reach; it waits for quorum contact later
	// than the call.
	ReadIndex(ctx context.Context) (muster.Index, error)
	// WaitApplied waits until the local state has reached index.
	WaitApplied(ctx context.Context, index muster.Index) error
	// Read gives the local state as it is.
	Read() *wire.Reader
	// Watch wakes (at most one pending wake-up) whenever one of the jobs or nodes changed; nil, nil: whenever anything did.
	Watch(jobs []muster.JobID, nodes []muster.NodeID) (wake <-chan struct{}, stop func())
	// Renew takes renewals at the leader. It answers once quorum contact is later than the call's arrival.
	Renew(ctx context.Context, batch *wire.RenewBatch) (*wire.RenewBatchReply, error)
	// Explain answers why at the leader, of the newest pass.
	Explain(ctx context.Context, job muster.JobID) (*wire.WhyReply, error)
	// Suspects gives, at the leader, the nodes that get no new work because they are silent.
	Suspects(ctx context.Context) (*wire.SuspectsReply, error)
	// Leader gives the RPC address of the leader, "" when none is known, and whether it is this server.
	Leader() (address string, self bool)
	// LeaderChanged is closed at the next change of leader.
	LeaderChanged() <-chan struct{}
	// Status is what this server knows of itself.
	Status() *wire.ServerInfo
	// Servers lists all servers known, from the raft configuration and gossip.
	Servers() []*wire.ServerInfo
}
