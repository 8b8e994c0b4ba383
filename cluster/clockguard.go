package cluster

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/raft"
)

// A server whose wall clock is off should not lead: the leader stamps what people see and what retention goes by. Servers hear
// each other's clocks in the answers to gossip's pings.
const (
	clockTolerance = 5 * time.Second
	clockHeardFor  = time.Minute // a clock's news stays good for so long, also of a server that is gone
	clockLook      = time.Second
)

// heardClock is how far another server's clock was ahead of this one's.
type heardClock struct {
	ahead time.Duration
	at    Boot
}

// offMedian is how far this clock is off the median of all clocks heard, itself included; judged is false with fewer than
// three, since of two nobody can say which is wrong.
func offMedian(aheadOfUs []time.Duration) (off time.Duration, judged bool) {
	all := append(slices.Clone(aheadOfUs), 0)
	if len(all) < 3 {
		return 0, false
	}
	slices.Sort(all)
	middle := len(all) / 2
	median := all[middle]
	if len(all)%2 == 0 {
		median = all[middle-1] + (all[middle]-all[middle-1])/2
	}
	return -median, true
}

// AckPayload and NotifyPingComplete are memberlist.PingDelegate: the answer to a ping carries the wall clock.
func (g *gossip) AckPayload() []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(g.clock.Wall().UnixMilli()))
}

func (g *gossip) NotifyPingComplete(other *memberlist.Node, roundTrip time.Duration, payload []byte) {
	if len(payload) != 8 {
		return
	}
	theirs := time.UnixMilli(int64(binary.BigEndian.Uint64(payload)))
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, server := g.alive[other.Name]; !server {
		return // a worker's clock is its own affair
	}
	g.clocks[other.Name] = heardClock{ahead: theirs.Sub(g.clock.Wall().Add(-roundTrip / 2)), at: g.clock.Boot()}
}

// clockOff is how far this server's clock is off the median of the servers'.
func (g *gossip) clockOff() (off time.Duration, judged bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Boot()
	var ahead []time.Duration
	for id, c := range g.clocks {
		if now-c.at > Boot(clockHeardFor) {
			delete(g.clocks, id)
			continue
		}
		ahead = append(ahead, c.ahead)
	}
	return offMedian(ahead)
}

// watchClock judges this server's clock. While it is off, the transport sends no request for votes, and a leader hands over.
func (s *Server) watchClock() {
	tick := time.NewTicker(clockLook)
	defer tick.Stop()
	handedOver := uint64(0)
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		}
		off, judged := s.gossip.clockOff()
		wrong := judged && off.Abs() > clockTolerance
		if wrong != s.clockWrong.Swap(wrong) {
			if wrong {
				s.logger.Error("this server's clock is off the others'; it will not lead until that is put right", "off", off.Round(time.Millisecond))
			} else {
				s.logger.Info("this server's clock is right again")
			}
		}
		if l := s.leadership.Load(); wrong && l != nil && l.term != handedOver {
			handedOver = l.term // one try a term
			s.handOver()
		}
	}
}

// standing is the transport's question whether this server may ask for votes.
func (t *contactTransport) standing() error {
	if t.clockWrong.Load() {
		return errClockWrong
	}
	return nil
}

func (t *contactTransport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := t.standing(); err != nil {
		return err
	}
	return t.inner.RequestVote(id, target, args, resp)
}

func (t *contactTransport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := t.standing(); err != nil {
		return err
	}
	return t.inner.(raft.WithPreVote).RequestPreVote(id, target, args, resp)
}
