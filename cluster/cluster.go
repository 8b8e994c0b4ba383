// Package cluster is a server's life: raft on disk, gossip, proposing, quorum contact, linearizable reads, and the duties of
// the leader, each a func(ctx) error bound to one term. It needs no RPC: rpc asks it, through rpc.Local.
package cluster
