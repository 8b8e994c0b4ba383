package cluster

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster/cluster/duty"
)

// contact is duty.Contact for many callers, who may wait for a change of it.
type contact struct {
	self raft.ServerID
	boot func() Boot
	// voters gives raft's newest configuration. One that is a single change behind is as good: majorities of both overlap.
	voters func() []raft.Server

	mu       sync.Mutex
	evidence *duty.Contact
	changed  chan struct{} // closed when evidence comes in or the term changes
}

func newContact(self raft.ServerID, boot func() Boot, voters func() []raft.Server) *contact {
	return &contact{self: self, boot: boot, voters: voters, evidence: duty.NewContact(), changed: make(chan struct{})}
}

// accepted records that peer accepted, in term, an AppendEntries sent at sent, after which it holds everything up to match.
func (c *contact) accepted(peer raft.ServerID, term uint64, sent Boot, match uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evidence.Accepted(string(peer), term, sent, match) {
		c.wake()
	}
}

// lead begins the leadership of term.
func (c *contact) lead(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evidence.Lead(term)
	c.wake()
}

func (c *contact) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// value gives quorum contact in term, and a channel that closes when it may have changed; 0 when another term has begun.
func (c *contact) value(term uint64) (Boot, <-chan struct{}) {
	servers := c.voters()
	voters := make([]string, 0, len(servers))
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, string(s.ID))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.evidence.Value(term, string(c.self), c.boot(), voters), c.changed
}

// wait waits until quorum contact in term is later than since; nudge asks raft for a heartbeat now.
func (c *contact) wait(ctx context.Context, term uint64, since Boot, nudge func()) error {
	for nudged := false; ; {
		value, changed := c.value(term)
		if value > since {
			return nil
		}
		if !nudged {
			nudged = true
			nudge()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// peer gives what is known of a peer in term.
func (c *contact) peer(term uint64, id raft.ServerID) (duty.Heard, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.evidence.Peer(term, string(id))
}

// contactTransport is raft's transport; it notes when each AppendEntries that is then accepted was sent.
type contactTransport struct {
	*raft.NetworkTransport
	inner   raft.Transport // what sends: the NetworkTransport, or a test's wrapper of it
	contact *contact

	clockWrong *atomic.Bool // no votes are asked for while it is set

	leads func(term uint64) bool // whether this server leads in term
	stop  <-chan struct{}        // closed when the server ends
}

// AppendEntries sends entries, or a heartbeat.
func (t *contactTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := t.contact.boot()
	var answer raft.AppendEntriesResponse // a fresh one: raft reuses its own, and what an earlier answer left must not count
	if err := t.inner.AppendEntries(id, target, args, &answer); err != nil {
		if len(args.Entries) > 0 {
			t.awaitPeer(id, args.Term, sent)
		}
		return err
	}
	if answer.Success && answer.Term == args.Term {
		match := uint64(0)
		if args.PrevLogEntry > 0 || len(args.Entries) > 0 { // not a heartbeat, which says nothing of the log
			match = args.PrevLogEntry + uint64(len(args.Entries))
		}
		t.contact.accepted(id, args.Term, sent, match)
	}
	*resp = answer
	return nil
}

// AppendEntriesPipeline is not offered: with pipelining a follower whose appends failed for a while lags for long, and all
// evidence of contact comes through AppendEntries.
func (t *contactTransport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// The rest goes through the inner transport too; votes: clockguard.go.

func (t *contactTransport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	sent := t.contact.boot()
	err := t.inner.InstallSnapshot(id, target, args, resp, data)
	if err != nil {
		t.awaitPeer(id, args.Term, sent)
	}
	return err
}

// peerLook is how often awaitPeer looks whether this server still leads.
const peerLook = 50 * time.Millisecond

// awaitPeer waits until a peer has accepted a heartbeat that was sent after since. Raft answers each failure to send entries
// with twice the pause before the next, up to ten seconds, whatever its heartbeats say: a follower that was away for a while
// would come back and not count. So entries that can't be sent fail once, when the peer is heard again.
func (t *contactTransport) awaitPeer(id raft.ServerID, term uint64, since Boot) {
	tick := time.NewTicker(peerLook)
	defer tick.Stop()
	for t.leads(term) {
		if p, ok := t.contact.peer(term, id); ok && p.Sent > since {
			return
		}
		select {
		case <-t.stop:
			return
		case <-tick.C:
		}
	}
}

func (t *contactTransport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.inner.TimeoutNow(id, target, args, resp)
}
