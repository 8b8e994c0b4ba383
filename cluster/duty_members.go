package cluster

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// A non-voter is promoted when it was heard of lately and lacks at most so much of the log.
const (
	promoteRecent = time.Second
	promoteLag    = 256
	memberTimeout = 5 * time.Second
)

// change is one change of raft's membership.
type change struct {
	server raft.Server // as it shall be
	reason string
}

// nextChange decides the next change: an address that moved, a server that gossip sees and raft does not know (it joins
// without a vote), a non-voter that may be promoted. nil: all is well. Servers that died stay: taking them out would let the
// cluster shrink below what it was configured for.
func nextChange(servers []raft.Server, seen []member, voters int, caughtUp func(raft.ServerID) bool) *change {
	byID := make(map[raft.ServerID]raft.Server, len(servers))
	votes := 0
	for _, s := range servers {
		byID[s.ID] = s
		if s.Suffrage == raft.Voter {
			votes++
		}
	}
	for _, m := range seen {
		s, known := byID[raft.ServerID(m.ID)]
		at := raft.ServerAddress(m.RPC)
		switch {
		case known && s.Address != at:
			s.Address = at
			return &change{s, "its address changed"}
		case !known && !addressTaken(servers, seen, at):
			return &change{raft.Server{Suffrage: raft.Nonvoter, ID: raft.ServerID(m.ID), Address: at}, "it joins"}
		}
	}
	if votes >= voters {
		return nil
	}
	for _, m := range seen {
		if s, known := byID[raft.ServerID(m.ID)]; known && s.Suffrage != raft.Voter && caughtUp(s.ID) {
			s.Suffrage = raft.Voter
			return &change{s, "it has caught up"}
		}
	}
	return nil
}

// addressTaken says whether another server that gossip sees alive has the address: raft refuses two with one.
func addressTaken(servers []raft.Server, seen []member, at raft.ServerAddress) bool {
	for _, s := range servers {
		if s.Address != at {
			continue
		}
		for _, m := range seen {
			if raft.ServerID(m.ID) == s.ID && raft.ServerAddress(m.RPC) == at {
				return true
			}
		}
	}
	return false
}

// keepMembers brings raft's configuration in line with the servers that gossip sees.
func (l *leadership) keepMembers(ctx context.Context) error {
	s := l.server
	ticker := time.NewTicker(membersTick)
	defer ticker.Stop()
	for {
		for ctx.Err() == nil {
			c := nextChange(s.raftServers(), s.gossip.members(), s.config.Voters, l.caughtUp)
			if c == nil {
				break
			}
			s.logger.Info("changing the members", "server", c.server.ID, "address", c.server.Address, "as", c.server.Suffrage, "reason", c.reason)
			if err := l.await(l.changeMember(c)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.members:
		case <-ticker.C:
		}
	}
}

func (l *leadership) changeMember(c *change) raft.Future {
	if c.server.Suffrage == raft.Voter {
		return l.server.raft.AddVoter(c.server.ID, c.server.Address, 0, memberTimeout)
	}
	return l.server.raft.AddNonvoter(c.server.ID, c.server.Address, 0, memberTimeout)
}

// caughtUp says whether a server holds nearly all of the log and was heard of lately.
func (l *leadership) caughtUp(id raft.ServerID) bool {
	p, ok := l.server.contact.peer(l.term, id)
	recent := l.server.config.Clock.Boot() - p.Sent
	return ok && recent < Boot(promoteRecent) && p.Match+promoteLag >= l.server.raft.LastIndex()
}
