package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/hashicorp/raft"
)

// founders picks the servers that a new cluster is made of: the expect lowest ids among those that belong to none; nil while
// there are too few, or somebody belongs to a cluster already (that one's leader will add us). agreed names the set, in few
// bytes. The lowest founder makes the cluster once all founders say the same agreed: two different sets that both hold a
// founder can't both be complete, since that founder says one thing.
func founders(members []member, expect int) (set []member, agreed string) {
	sum := sha256.New()
	for _, m := range members { // by id
		if !m.New {
			return nil, ""
		}
		if len(set) < expect {
			set = append(set, m)
			sum.Write([]byte(m.ID + "\n"))
		}
	}
	if len(set) < expect {
		return nil, ""
	}
	return set, hex.EncodeToString(sum.Sum(nil)[:8])
}

// discover tells the others what this server is, and founds the cluster when it is its turn.
func (s *Server) discover(ctx context.Context, isNew bool) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if isNew && len(s.raftServers()) > 0 {
			isNew = false
		}
		if !isNew {
			s.gossip.say(false, "")
		} else if set, agreed := founders(s.gossip.members(), s.config.Expect); set == nil || s.onlyJoins() {
			s.gossip.say(true, "")
		} else {
			s.gossip.say(true, agreed)
			if set[0].ID == s.ID() && s.allSee(set, agreed) {
				s.found(set)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.gossip.wake:
		case <-tick.C:
		}
		s.wakeMembers()
	}
}

// onlyJoins says that this server never founds a cluster: it was told of others and expects nobody beside itself.
func (s *Server) onlyJoins() bool { return s.config.Expect == 1 && len(s.config.Join) > 0 }

func (s *Server) allSee(set []member, agreed string) bool {
	for _, m := range set[1:] { // set[0] is this server
		if m.Sees != agreed {
			return false
		}
	}
	return true
}

// found makes a new cluster of set.
func (s *Server) found(set []member) {
	var c raft.Configuration
	for _, m := range set {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.RPC)})
	}
	if err := s.raft.BootstrapCluster(c).Error(); err != nil {
		s.logger.Error("could not make a new cluster", "error", err)
		return
	}
	s.logger.Info("made a new cluster", "servers", len(set), "cluster", s.config.ClusterID)
}
