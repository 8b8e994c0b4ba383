package duty

import (
	"fmt"
	"sync"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// LeaseTick is how often Tick is to be called.
const LeaseTick = 500 * time.Millisecond

// When a lease has run out for certain, and when a node is taken for silent.
const (
	lateTick      = time.Second // a tick later than this by so much makes every lease fresh: this process was not running
	leaseMargin   = time.Second // beside 5 % of the lease, the clock drift that is allowed
	idleNodeLost  = 60 * time.Second
	renewAtMost   = 5 * time.Second // a worker renews each min(this, lease / renewParts)
	renewParts    = 6
	silentAtLeast = 3 * time.Second
	brokenStream  = 2 * time.Second // of a worker whose stream broke, to come back
)

// Leases is the leader's memory of who may still be running: for each live allocation, when the last answer that let it
// go on was sent. It lives for one term; a new leader takes every lease for fresh, since it does not know what the one before
// answered.
//
// What an answer covers: the allocations that the renewal names; and those that no renewal has named yet, nor any report:
// their worker may not have heard of them.
//
// The table is pure: it is told the time and the state.
type Leases struct {
	mu       sync.Mutex
	ticked   Boot
	nodes    map[muster.NodeID]*nodeLease
	pending  []*Renewal
	suspects map[muster.NodeID]string
}

type nodeLease struct {
	session string
	heard   Boot // when the last renewal of this session arrived
	broke   Boot // when its stream broke, unless it was heard since
	load    int64
	allocs  map[muster.AllocID]*allocLease
	lease   time.Duration // the shortest of them; 0 = none
	losing  bool          // the end of this session is being proposed
}

type allocLease struct {
	since  Boot // the last answer that covers it was sent, or it was first seen
	named  bool
	ending bool // its end is being proposed: from here on no answer may let it go on
}

// Renewal waits until quorum contact is later than its arrival.
type Renewal struct {
	arrived Boot
	batch   *wire.RenewBatch
	Answer  chan []bool // capacity 1: for each renewal of the batch, whether its leases go on
}

// NewLeases begins the table of a term: every lease is fresh.
func NewLeases(now Boot) *Leases {
	return &Leases{ticked: now, nodes: map[muster.NodeID]*nodeLease{}, suspects: map[muster.NodeID]string{}}
}

// Arrive takes a batch of renewals in. It is answered by settle.
func (t *Leases) Arrive(now Boot, s *state.Snapshot, batch *wire.RenewBatch) *Renewal {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range batch.Renewals {
		row, ok := s.Node(muster.NodeID(r.Node))
		if !ok || row.Session != r.Session {
			continue
		}
		n := t.node(row, now)
		if r.Silent {
			n.broke = max(1, now)
			continue
		}
		n.heard, n.broke = now, 0
		if g := r.Renew.GetGauges(); g != nil && row.MilliCores > 0 {
			n.load = g.CpuMilli * 1000 / int64(row.MilliCores)
		}
	}
	r := &Renewal{arrived: now, batch: batch, Answer: make(chan []bool, 1)}
	t.pending = append(t.pending, r)
	return r
}

// Broke notes that the stream of a node's session broke.
func (t *Leases) Broke(now Boot, s *state.Snapshot, node muster.NodeID, session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if row, ok := s.Node(node); ok && row.Session == session {
		t.node(row, now).broke = max(1, now)
	}
}

// Waiting says whether any renewal waits for contact.
func (t *Leases) Waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending) > 0
}

// Settle answers every renewal that arrived before contact. The leases it extends count from now, when the answer goes out.
func (t *Leases) Settle(now, contact Boot, s *state.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settleLocked(now, contact, s)
}

func (t *Leases) settleLocked(now, contact Boot, s *state.Snapshot) {
	left := t.pending[:0]
	for _, r := range t.pending {
		if r.arrived >= contact {
			left = append(left, r)
			continue
		}
		ok := make([]bool, len(r.batch.Renewals))
		for i, one := range r.batch.Renewals {
			ok[i] = !one.Silent && t.extend(now, s, one)
		}
		r.Answer <- ok
	}
	clear(t.pending[len(left):])
	t.pending = left
}

// extend lets a node's allocations go on. False: the session is over, or being ended: the worker must register anew, and the
// state decides about each of its allocations.
func (t *Leases) extend(now Boot, s *state.Snapshot, r *wire.NodeRenew) bool {
	row, ok := s.Node(muster.NodeID(r.Node))
	if !ok || row.Lost || row.Session != r.Session {
		return false
	}
	n := t.node(row, now)
	if n.losing {
		return false
	}
	named := make([]*allocLease, 0, len(r.Renew.GetAllocs()))
	for _, id := range r.Renew.GetAllocs() {
		a := n.allocs[muster.AllocID{Epoch: muster.Epoch(id.Epoch), Counter: id.Counter}]
		if a == nil {
			if a = t.lateComer(now, s, row, id, n); a == nil {
				continue // ended: its view says so
			}
		}
		if a.ending {
			return false
		}
		named = append(named, a)
	}
	for _, a := range named {
		a.since, a.named = now, true
	}
	for _, a := range n.allocs {
		if !a.named && !a.ending {
			a.since = now
		}
	}
	return true
}

// lateComer finds an allocation that was placed since the last tick.
func (t *Leases) lateComer(now Boot, s *state.Snapshot, row *muster.Node, id *wire.AllocID, n *nodeLease) *allocLease {
	alloc, ok := s.Alloc(muster.AllocID{Epoch: muster.Epoch(id.Epoch), Counter: id.Counter})
	if !ok || alloc.Node != row.ID || alloc.Phase == muster.AllocEnded {
		return nil
	}
	a := &allocLease{since: now}
	n.allocs[alloc.ID] = a
	return a
}

// node gives what is known of a node, begun anew with each session; its allocations' leases stay.
func (t *Leases) node(row *muster.Node, now Boot) *nodeLease {
	n := t.nodes[row.ID]
	if n == nil {
		n = &nodeLease{session: row.Session, heard: now, allocs: map[muster.AllocID]*allocLease{}}
		t.nodes[row.ID] = n
	}
	if n.session != row.Session {
		n.session, n.heard, n.broke, n.losing = row.Session, now, 0, false
	}
	return n
}

// Tick looks at every lease once and gives what has run out for certain: nothing that contact is not later than, so that a
// leader without a majority ends nothing. Renewals that came before are answered first.
func (t *Leases) Tick(now, contact Boot, s *state.Snapshot) []*state.EndLeases {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settleLocked(now, contact, s)
	late := now-t.ticked > Boot(LeaseTick+lateTick)
	t.ticked = now
	var ends []*state.EndLeases
	suspects := map[muster.NodeID]string{}
	for row := range s.Nodes() {
		n := t.node(row, now)
		if late {
			n.heard, n.broke = now, 0
		}
		if end := t.look(now, contact, s, row, n, late); end != nil {
			ends = append(ends, end)
		}
		if reason := n.silence(now); reason != "" && !row.Lost {
			suspects[row.ID] = reason
		}
	}
	t.suspects = suspects
	return ends
}

// look brings a node's leases in line with the state and says which of them have run out.
func (t *Leases) look(now, contact Boot, s *state.Snapshot, row *muster.Node, n *nodeLease, late bool) *state.EndLeases {
	before := n.allocs
	n.allocs, n.lease = make(map[muster.AllocID]*allocLease, row.Allocs), 0
	end := &state.EndLeases{Node: row.ID, Session: row.Session}
	for alloc := range s.AllocsOnNode(row.ID) {
		a := before[alloc.ID]
		if a == nil {
			a = &allocLease{since: now}
		}
		n.allocs[alloc.ID] = a
		a.named = a.named || alloc.Phase > muster.AllocPlaced // its worker has it, and named it to a leader before
		if late {
			a.since = now
		}
		if n.lease == 0 || alloc.Lease < n.lease {
			n.lease = alloc.Lease
		}
		free := a.since + Boot(alloc.Lease+alloc.Lease/20+leaseMargin)
		if a.ending || now > free && contact > free {
			end.Allocs = append(end.Allocs, alloc.ID)
		}
	}
	switch idle := len(n.allocs) == 0; {
	case row.Lost && idle:
		return nil
	case idle:
		lost := n.heard + Boot(idleNodeLost)
		if !n.losing && (now <= lost || contact <= lost) {
			return nil
		}
		end.Lost, end.Reason = true, fmt.Sprintf("not heard of for %v", idleNodeLost)
	case len(end.Allocs) == 0:
		return nil
	case len(end.Allocs) == len(n.allocs):
		end.Lost, end.Reason = true, "not heard of until its leases ran out"
	default:
		end.Reason = "its supervisor was not heard of until its lease ran out"
	}
	n.losing = end.Lost
	for _, id := range end.Allocs {
		n.allocs[id].ending = true
	}
	return end
}

// Refused takes back what tick decided: the state would not have it. (When an outcome is not known, nothing is taken back:
// the end may still commit, and an answer meanwhile would let the task go on.)
func (t *Leases) Refused(end *state.EndLeases) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[end.Node]
	if n == nil {
		return
	}
	n.losing = false
	for _, id := range end.Allocs {
		if a := n.allocs[id]; a != nil {
			a.ending = false
		}
	}
}

// silence says why a node is suspect, "" when it is not.
func (n *nodeLease) silence(now Boot) string {
	interval := renewAtMost
	if n.lease > 0 {
		interval = min(interval, n.lease/renewParts)
	}
	switch {
	case n.broke > 0 && now > n.broke+Boot(brokenStream):
		return "its connection broke"
	case now > n.heard+Boot(max(silentAtLeast, 2*interval)):
		return fmt.Sprintf("silent for more than %v", max(silentAtLeast, 2*interval))
	}
	return ""
}

// Speaks says whether the worker of a node's session is there, as far as this leader hears: it renews in time, and its stream
// holds.
func (t *Leases) Speaks(now Boot, row *muster.Node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[row.ID]
	return n != nil && n.session == row.Session && !row.Lost && n.broke == 0 && n.silence(now) == ""
}

// Silent gives the nodes that get no new work, with the reason, as the last tick saw them. The map is not changed any more.
func (t *Leases) Silent() map[muster.NodeID]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.suspects
}

// Loads gives the CPU in use of each node, in permille, as last heard.
func (t *Leases) Loads() map[muster.NodeID]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[muster.NodeID]int64, len(t.nodes))
	for id, n := range t.nodes {
		if n.load > 0 {
			out[id] = n.load
		}
	}
	return out
}
