package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster/wire"
)

// Read gives the local state as it is.
func (s *Server) Read() *wire.Reader { return wire.ReaderOf(s.hub.newest().snapshot) }

// Status is what this server knows of itself.
func (s *Server) Status() *wire.ServerInfo {
	newest := s.hub.newest()
	_, self := s.Leader()
	info := &wire.ServerInfo{
		Id: s.ID(), Name: s.config.Name, Address: s.config.RPCAddress, Http: s.config.HTTPAddress,
		Leader: self, Term: s.raft.CurrentTerm(),
		AppliedIndex: uint64(newest.index), Digest: fmt.Sprintf("%016x", newest.snapshot.Digest()),
		Version: s.config.Version, Cluster: s.config.ClusterID,
	}
	for _, server := range s.raftServers() {
		if string(server.ID) == s.ID() {
			info.Voter = server.Suffrage == raft.Voter
		}
	}
	return info
}

// Servers lists all servers known, from the raft configuration and gossip, by id. Of the others it knows no index; what
// gossip does not see alive has an error.
func (s *Server) Servers() []*wire.ServerInfo {
	_, leader := s.raft.LeaderWithID()
	byID := map[string]*wire.ServerInfo{}
	for _, server := range s.raftServers() {
		byID[string(server.ID)] = &wire.ServerInfo{
			Id: string(server.ID), Address: string(server.Address), Voter: server.Suffrage == raft.Voter,
			Leader: server.ID == leader, Cluster: s.config.ClusterID, Error: "gossip does not see it alive",
		}
	}
	for _, m := range s.gossip.members() {
		info := byID[m.ID]
		if info == nil {
			info = &wire.ServerInfo{Id: m.ID, Cluster: s.config.ClusterID}
			byID[m.ID] = info
		}
		info.Name, info.Address, info.Http, info.Version, info.Error = m.Name, m.RPC, m.HTTP, m.Ver, ""
	}
	byID[s.ID()] = s.Status()
	out := make([]*wire.ServerInfo, 0, len(byID))
	for _, info := range byID {
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b *wire.ServerInfo) int { return strings.Compare(a.Id, b.Id) })
	return out
}
