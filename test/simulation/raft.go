package simulation

import (
	"bytes"
	"io"
	"math/bits"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/cluster/duty"
	"github.com/musterhpc/muster/fsm"
	"github.com/musterhpc/muster/fsm/state"
)

// The model of raft: terms, votes, a log that is on the disk only after a sync, majorities, leaders that step down late. What it
// has in common with the library that servers use is what the rest relies on: an entry that a majority has synced stays, each
// index holds one entry, and a leader's answers to AppendEntries are evidence from when those were sent.
const (
	heartbeatEvery = 150 * time.Millisecond
	electionLow    = 500 * time.Millisecond
	electionHigh   = 1200 * time.Millisecond
	raftTick       = 100 * time.Millisecond
	appendMax      = 64 // entries in a message
	snapshotEvery  = 50 // entries
	trailing       = 20 // entries kept before a snapshot
)

type role uint8

const (
	follower role = iota
	candidate
	leader
)

type logEntry struct {
	term uint64
	data []byte // a wire.Entry; nil: an entry of raft's own
}

// disk is what a server has after a crash.
type disk struct {
	term    uint64
	voted   int // 0 = nobody, else the server's number + 1
	base    uint64
	entries []logEntry // entries[i] is at base + 1 + i
	synced  uint64     // the last index that is on the disk for certain

	snapshot []byte
	snapAt   uint64
	snapTerm uint64
}

func (d *disk) last() uint64 { return d.base + uint64(len(d.entries)) }

func (d *disk) termAt(index uint64) (uint64, bool) {
	switch {
	case index == 0:
		return 0, true
	case index == d.snapAt:
		return d.snapTerm, true
	case index <= d.base || index > d.last():
		return 0, false
	}
	return d.entries[index-d.base-1].term, true
}

// server is a server: the model of raft, the real state machine, and what it serves.
type server struct {
	*proc
	w      *world
	number int
	disk   disk

	role     role
	leaderIs int // number + 1; 0 = not known
	heard    time.Duration
	patience time.Duration
	votes    uint64 // bits of those who voted for it
	next     []uint64
	match    []uint64
	busy     []bool // an AppendEntries with entries is under way to that peer
	busyTill []time.Duration
	beat     time.Duration // when the last heartbeats went out
	commit   uint64
	syncing  bool
	stalled  time.Duration // until when nothing is applied

	fsm     *fsm.FSM
	applied uint64
	contact *duty.Contact
	flights map[uint64]*flight
	waiters []waiter
	lead    *leadership

	sessions map[muster.NodeID]*session // the newest of each node
	watching map[*session]bool
	batch    *renewBatch // gathers
	renewing bool

	diskSlow time.Duration // more for each sync, at most
}

// waiter waits until the state has reached an index.
type waiter struct {
	index uint64
	do    func(reached bool)
	over  *bool
}

// flight is an entry that this leader proposed and nobody knows the outcome of.
type flight struct {
	term uint64
	done func(results []state.Result, index uint64, err error)
}

func newServer(w *world, number int, rate float64) *server {
	h := w.newHost(serverName(number), number, rate)
	return &server{proc: &proc{host: h, name: h.name}, w: w, number: number}
}

// start begins a life of the server with what is on its disk.
func (s *server) start() {
	s.begin()
	s.role, s.leaderIs, s.votes, s.syncing, s.stalled = follower, 0, 0, false, 0
	s.contact, s.flights, s.waiters, s.lead = duty.NewContact(), map[uint64]*flight{}, nil, nil
	s.sessions, s.watching, s.batch, s.renewing = map[muster.NodeID]*session{}, map[*session]bool{}, nil, false
	s.fsm = fsm.New(nil, func(m string) { s.w.judge.fail("works", "%s stops: %s", s.name, m) })
	s.applied, s.commit = 0, s.disk.snapAt
	if s.disk.snapshot != nil {
		s.restore()
	}
	s.settleDown()
	s.tick()
}

func (s *server) restore() {
	if err := s.fsm.Restore(io.NopCloser(bytes.NewReader(s.disk.snapshot))); err != nil {
		s.w.judge.fail("works", "%s can't restore its snapshot: %v", s.name, err)
	}
	s.applied = s.disk.snapAt
	s.commit = max(s.commit, s.applied)
	s.w.counts.Restores++
}

// crash ends the process; with power, what was not synced may be gone.
func (s *server) crash() {
	if !s.alive {
		return
	}
	s.end()
	keep := s.disk.synced
	if last := s.disk.last(); last > keep {
		keep += uint64(s.host.rand.Int64N(int64(last-keep) + 1))
	}
	s.disk.entries = s.disk.entries[:keep-s.disk.base]
	s.disk.synced = keep
	s.lead = nil
	s.w.net.died(s.proc)
}

func (s *server) settleDown() {
	s.heard, s.patience = s.w.now, between(s.host.rand, electionLow, electionHigh)
}

func (s *server) boot() duty.Boot { return duty.Boot(s.host.clock()) }

func (s *server) snapshot() *state.Snapshot { return s.fsm.Published().Snapshot }

// tick is what no message brings about.
func (s *server) tick() {
	s.after(raftTick, s.tick)
	switch {
	case s.role == leader:
		if s.w.now-s.beat >= heartbeatEvery {
			s.heartbeat()
		}
		if l := s.lead; l != nil && s.boot()-max(l.contact(), l.since) > duty.Boot(s.w.plan.StepDown) {
			s.stepDown("no majority")
		}
	case s.w.now-s.heard > s.patience:
		s.campaign()
	}
	if s.stalled != 0 && s.w.now >= s.stalled {
		s.stalled = 0
		s.apply()
	}
}

func (s *server) voters() []string {
	names := make([]string, len(s.w.servers))
	for i, o := range s.w.servers {
		names[i] = o.name
	}
	return names
}

func (s *server) quorum(term uint64) duty.Boot {
	return s.contact.Value(term, s.name, s.boot(), s.voters())
}

func (s *server) majority() int { return len(s.w.servers)/2 + 1 }

// observe takes a term in that a message names.
func (s *server) observe(term uint64) {
	if term > s.disk.term {
		s.disk.term, s.disk.voted = term, 0
		s.stepDown("a later term")
		s.leaderIs = 0
	}
}

func (s *server) stepDown(why string) {
	if s.role == leader {
		s.w.say(s.name, "leads no more in term %d: %s", s.lead.term, why)
		s.w.counts.Depositions++
		s.endLeadership()
	}
	s.role = follower
	s.settleDown()
}

func (s *server) campaign() {
	s.disk.term++
	s.disk.voted = s.number + 1
	s.role, s.votes, s.leaderIs = candidate, 1<<s.number, 0
	s.settleDown()
	term, last := s.disk.term, s.disk.last()
	lastTerm, _ := s.disk.termAt(last)
	if s.majority() == 1 {
		s.win()
		return
	}
	for _, o := range s.w.servers {
		if o == s {
			continue
		}
		s.w.net.datagram(s.proc, o.proc, func() { o.asked(s, term, last, lastTerm) })
	}
}

func (s *server) asked(from *server, term, last, lastTerm uint64) {
	s.observe(term)
	own, _ := s.disk.termAt(s.disk.last())
	newer := lastTerm > own || lastTerm == own && last >= s.disk.last()
	if term < s.disk.term || !newer || s.disk.voted != 0 && s.disk.voted != from.number+1 {
		now := s.disk.term
		s.w.net.datagram(s.proc, from.proc, func() { from.observe(now) })
		return
	}
	s.disk.voted = from.number + 1
	s.settleDown()
	s.after(s.syncTime(), func() { // a vote is on the disk before it is given
		s.w.net.datagram(s.proc, from.proc, func() { from.voteFor(s.number, term) })
	})
}

func (s *server) voteFor(voter int, term uint64) {
	if s.role != candidate || s.disk.term != term {
		return
	}
	s.votes |= 1 << voter
	if bits.OnesCount64(s.votes) >= s.majority() {
		s.win()
	}
}

func (s *server) win() {
	s.role, s.leaderIs = leader, s.number+1
	n := len(s.w.servers)
	s.next, s.match, s.busy, s.busyTill = make([]uint64, n), make([]uint64, n), make([]bool, n), make([]time.Duration, n)
	for i := range s.next {
		s.next[i] = s.disk.last() + 1
	}
	s.w.judge.elected(s)
	s.w.counts.Elections++
	s.w.say(s.name, "leads in term %d", s.disk.term)
	s.beginLeadership()
}

func (s *server) syncTime() time.Duration {
	d := between(s.host.rand, 500*time.Microsecond, 3*time.Millisecond)
	if s.diskSlow > 0 {
		d += between(s.host.rand, 0, s.diskSlow)
	}
	return d
}

// sync puts on the disk what is not there yet, then says so.
func (s *server) sync(then func()) {
	upto, term := s.disk.last(), s.disk.term
	s.after(s.syncTime(), func() {
		if s.disk.term == term || upto <= s.disk.last() {
			s.disk.synced = max(s.disk.synced, min(upto, s.disk.last()))
		}
		then()
	})
}

// propose appends an entry at the leader; done is told its outcome here, or that it is not known.
func (s *server) propose(data []byte, done func([]state.Result, uint64, error)) uint64 {
	s.disk.entries = append(s.disk.entries, logEntry{s.disk.term, data})
	index := s.disk.last()
	if done != nil {
		s.flights[index] = &flight{s.disk.term, done}
	}
	s.sync(s.advance)
	s.replicate()
	return index
}

func (s *server) heartbeat() {
	s.beat = s.w.now
	for i, o := range s.w.servers {
		if o != s {
			s.append(i, o, false)
		}
	}
}

// replicate sends entries to whoever misses some and has none under way.
func (s *server) replicate() {
	for i, o := range s.w.servers {
		if o != s && s.next[i] <= s.disk.last() && (!s.busy[i] || s.w.now > s.busyTill[i]) {
			s.append(i, o, true)
		}
	}
}

type appendMessage struct {
	from           *server
	term           uint64
	prev, prevTerm uint64
	entries        []logEntry
	commit         uint64
	sent           duty.Boot
	heartbeat      bool
}

func (s *server) append(i int, o *server, withEntries bool) {
	m := appendMessage{from: s, term: s.disk.term, commit: s.commit, sent: s.boot(), heartbeat: !withEntries}
	if withEntries {
		m.prev = s.next[i] - 1
		term, ok := s.disk.termAt(m.prev)
		if !ok || m.prev < s.disk.base {
			s.install(i, o)
			return
		}
		m.prevTerm = term
		from := m.prev - s.disk.base
		m.entries = slices.Clone(s.disk.entries[from:min(from+appendMax, uint64(len(s.disk.entries)))])
		s.busy[i], s.busyTill[i] = true, s.w.now+300*time.Millisecond
	} else {
		m.prev = s.match[i] // what it is known to hold: it may be told of commits up to there
		m.commit = min(m.commit, s.match[i])
	}
	s.w.net.datagram(s.proc, o.proc, func() { o.appended(m) })
}

func (s *server) appended(m appendMessage) {
	s.observe(m.term)
	answer := func(ok bool, match uint64) {
		term := s.disk.term
		s.w.net.datagram(s.proc, m.from.proc, func() { m.from.answered(s, term, m, ok, match) })
	}
	if m.term < s.disk.term {
		answer(false, 0)
		return
	}
	s.role, s.leaderIs = follower, m.from.number+1
	s.settleDown()
	if m.heartbeat {
		s.learnCommit(m.commit)
		answer(true, 0)
		return
	}
	have, known := s.disk.termAt(m.prev)
	if m.prev > s.disk.last() || !known && m.prev > s.disk.base || known && have != m.prevTerm {
		answer(false, min(s.disk.last(), m.prev-1))
		return
	}
	at := m.prev
	for _, e := range m.entries {
		at++
		if at <= s.disk.base {
			continue
		}
		if term, ok := s.disk.termAt(at); ok && at <= s.disk.last() {
			if term == e.term {
				continue
			}
			s.disk.entries = s.disk.entries[:at-s.disk.base-1]
			s.disk.synced = min(s.disk.synced, at-1)
		}
		s.disk.entries = append(s.disk.entries, e)
	}
	match := m.prev + uint64(len(m.entries))
	if s.w.bugs.AnswersBeforeSync {
		s.after(2*time.Second, func() { s.disk.synced = max(s.disk.synced, min(match, s.disk.last())) })
		s.learnCommit(min(m.commit, match))
		answer(true, match)
		return
	}
	term := s.disk.term
	s.sync(func() {
		if s.disk.term != term {
			return
		}
		s.learnCommit(min(m.commit, match))
		answer(true, match)
	})
}

func (s *server) answered(from *server, term uint64, m appendMessage, ok bool, match uint64) {
	s.observe(term)
	if s.role != leader || s.disk.term != m.term {
		return
	}
	i := from.number
	if ok {
		s.contact.Accepted(from.name, m.term, m.sent, match)
		s.settleRenewals()
	}
	if m.heartbeat {
		s.replicate()
		return
	}
	s.busy[i] = false
	if ok {
		s.match[i] = max(s.match[i], match)
		s.next[i] = max(s.next[i], s.match[i]+1)
		s.advance()
	} else {
		s.next[i] = max(s.match[i]+1, min(s.next[i], match+1))
	}
	s.replicate()
}

// install sends the snapshot to a follower that misses what the log does not hold any more.
func (s *server) install(i int, o *server) {
	s.busy[i], s.busyTill[i] = true, s.w.now+time.Second
	term, data, at, of := s.disk.term, s.disk.snapshot, s.disk.snapAt, s.disk.snapTerm
	s.w.net.datagram(s.proc, o.proc, func() {
		o.observe(term)
		if term < o.disk.term {
			return
		}
		o.role, o.leaderIs = follower, s.number+1
		o.settleDown()
		if at > o.applied && at > o.commit {
			o.disk.snapshot, o.disk.snapAt, o.disk.snapTerm = data, at, of
			o.disk.base, o.disk.entries, o.disk.synced = at, nil, at
			o.restore()
			o.reached(state.Changed{}, true)
		}
		o.after(o.syncTime(), func() {
			match := at
			o.w.net.datagram(o.proc, s.proc, func() {
				if s.role == leader && s.disk.term == term {
					s.busy[i] = false
					s.match[i] = max(s.match[i], match)
					s.next[i] = max(s.next[i], match+1)
					s.advance()
					s.replicate()
				}
			})
		})
	})
}

// advance commits what a majority has synced, of this term.
func (s *server) advance() {
	if s.role != leader {
		return
	}
	s.match[s.number] = s.disk.synced
	sorted := slices.Clone(s.match)
	slices.Sort(sorted)
	at := sorted[len(sorted)-s.majority()]
	if term, ok := s.disk.termAt(at); at > s.commit && ok && term == s.disk.term {
		s.learnCommit(at)
		s.heartbeat() // tells followers
	}
}

func (s *server) learnCommit(index uint64) {
	if index = min(index, s.disk.last()); index > s.commit {
		s.commit = index
		s.apply()
	}
}

// apply brings the state machine forward to what is committed.
func (s *server) apply() {
	if s.stalled != 0 {
		return
	}
	for s.applied < s.commit {
		s.applied++
		e := s.disk.entries[s.applied-s.disk.base-1]
		s.w.judge.committed(s, s.applied, e)
		f := s.flights[s.applied]
		delete(s.flights, s.applied)
		var changed state.Changed
		var results []state.Result
		if e.data != nil {
			results = s.fsm.Apply(&raft.Log{Index: s.applied, Term: e.term, Type: raft.LogCommand, Data: e.data}).([]state.Result)
			changed = s.fsm.Published().Changed
			s.w.judge.applied(s, s.applied, changed)
		}
		if f != nil {
			if f.term == e.term {
				f.done(results, s.applied, nil)
			} else {
				f.done(nil, 0, errUnknown)
			}
		}
		s.reached(changed, false)
	}
	s.compact()
}

// compact writes a snapshot now and then, and shortens the log.
func (s *server) compact() {
	if s.applied < s.disk.snapAt+snapshotEvery {
		return
	}
	var file bytes.Buffer
	if err := fsm.WriteSnapshot(&file, s.snapshot()); err != nil {
		s.w.judge.fail("works", "%s can't write a snapshot: %v", s.name, err)
		return
	}
	at := uint64(s.snapshot().Version().Index) // of the last command: raft's own entries leave the state's index alone
	term, ok := s.disk.termAt(at)
	if !ok || at <= s.disk.snapAt {
		return
	}
	s.disk.snapshot, s.disk.snapAt, s.disk.snapTerm = file.Bytes(), at, term
	if at > s.disk.base+trailing {
		cut := at - trailing - s.disk.base
		s.disk.entries = slices.Clone(s.disk.entries[cut:])
		s.disk.base += cut
		s.disk.synced = max(s.disk.synced, s.disk.base)
	}
}

// reached tells who waits for the state.
func (s *server) reached(changed state.Changed, everything bool) {
	left := s.waiters[:0]
	var due []waiter
	for _, o := range s.waiters {
		switch {
		case *o.over:
		case o.index <= s.applied:
			due = append(due, o)
		default:
			left = append(left, o)
		}
	}
	s.waiters = left
	for _, o := range due {
		*o.over = true
		o.do(true)
	}
	for _, v := range s.inOrder() {
		if _, touched := slices.BinarySearch(changed.Nodes, v.node); touched || everything {
			v.wake()
		}
	}
	if s.lead != nil {
		s.lead.changed(changed, everything)
	}
}

// waitApplied waits until the state has reached an index, not longer than limit.
func (s *server) waitApplied(index uint64, limit time.Duration, do func(reached bool)) {
	if s.applied >= index {
		do(true)
		return
	}
	over := false
	s.waiters = append(s.waiters, waiter{index, do, &over})
	s.after(limit, func() {
		if !over {
			over = true
			do(false)
		}
	})
}
