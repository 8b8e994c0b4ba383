package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/musterhpc/muster"
)

// What raft is told; the reasons stand in DESIGN.md.
const (
	trailingLogs     = 10_240
	maxAppendEntries = 64
	logCacheEntries  = 128
	snapshotEntries  = 32_768
	snapshotBytes    = 64 << 20 // of log since the last one
	snapshotEvery    = 30 * time.Second
	snapshotsKept    = 2
	transportTimeout = 3 * time.Second
	transferRecent   = 100 * time.Millisecond // leadership is handed only to a follower heard of so lately
	boltMmap         = 64 << 20
)

// Server is one server of a cluster.
type Server struct {
	config Config
	logger hclog.Logger
	dir    *dataDir

	hub      *hub
	store    *raftboltdb.BoltStore
	watch    *diskWatch
	logs     *countedLogs
	entries  *raft.LogCache // the log as raft reads it
	raft     *raft.Raft
	contact  *contact
	proposer *proposer
	gossip   *gossip
	metrics  *instruments

	stopped context.CancelCauseFunc
	life    context.Context // ends with Shutdown
	wait    sync.WaitGroup

	notify     chan bool // raft's word on leadership, as it comes
	leadership atomic.Pointer[leadership]
	nudges     chan struct{}
	clockWrong atomic.Bool
	members    chan struct{} // something about the members changed

	mu           sync.Mutex
	leader       string // the leader's RPC address as last announced
	leaderMoved  chan struct{}
	shutdownOnce sync.Once
	shutdownErr  error
}

var (
	errStopping   = errors.New("this server is stopping")
	errClockWrong = errors.New("this server's clock is off: it does not stand for election")
)

// Start starts a server on its data directory. Everything it starts is stopped by Shutdown, or before Start fails.
func Start(c Config) (_ *Server, err error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		config:      c,
		logger:      c.Logger,
		hub:         newHub(),
		metrics:     newInstruments(),
		notify:      make(chan bool, 16),
		nudges:      make(chan struct{}, 1),
		members:     make(chan struct{}, 1),
		leaderMoved: make(chan struct{}),
	}
	s.life, s.stopped = context.WithCancelCause(context.Background())
	var undo []func()
	defer func() {
		if err != nil {
			s.stopped(errStopping)
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
			s.wait.Wait()
		}
	}()
	if s.dir, err = openDataDir(c.DataDir, c.ClusterID); err != nil {
		return nil, err
	}
	undo = append(undo, s.dir.close)
	isNew, err := s.startRaft(&undo)
	if err != nil {
		return nil, err
	}
	self := member{ID: s.ID(), Name: c.Name, RPC: c.RPCAddress, HTTP: c.HTTPAddress, New: isNew, Ver: c.Version}
	if s.gossip, err = startGossip(c, self); err != nil {
		return nil, err
	}
	s.wait.Go(s.followNotices)
	s.wait.Go(s.nudge)
	s.wait.Go(s.followLeader)
	s.wait.Go(s.snapshotByBytes)
	s.wait.Go(s.watchClock)
	s.wait.Go(func() { s.discover(s.life, isNew) })
	return s, nil
}

// startRaft opens the disk and starts raft; isNew: this server belongs to no cluster yet.
func (s *Server) startRaft(undo *[]func()) (isNew bool, err error) {
	c := s.config
	s.store, err = raftboltdb.New(raftboltdb.Options{
		Path: s.dir.file("raft.db"),
		BoltOptions: &bbolt.Options{
			Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, InitialMmapSize: boltMmap,
		},
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return false, fmt.Errorf("raft log: %w", err)
	}
	*undo = append(*undo, func() { s.store.Close() })
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(s.dir.path, snapshotsKept, s.logger.Named("snapshot"))
	if err != nil {
		return false, fmt.Errorf("raft snapshots: %w", err)
	}
	existing, err := raft.HasExistingState(s.store, s.store, snapshots)
	if err != nil {
		return false, fmt.Errorf("raft log: %w", err)
	}
	s.watch = newDiskWatch(c.Fatal, watchTick)
	*undo = append(*undo, s.watch.close)
	var disk raft.LogStore = s.store
	if c.WrapLogs != nil {
		disk = c.WrapLogs(disk)
	}
	s.logs = &countedLogs{LogStore: &watchedLogs{LogStore: disk, watch: s.watch}}
	if s.entries, err = raft.NewLogCache(logCacheEntries, s.logs); err != nil {
		return false, err
	}
	stream := newStreamLayer(c.RaftListener, c.RPCAddress, c.TLS, c.Network)
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: stream, MaxPool: 4, MaxRPCsInFlight: 1, Timeout: transportTimeout, Logger: s.logger.Named("raft-net"),
		MsgpackUseNewTimeFormat: true,
	})
	*undo = append(*undo, func() { transport.CloseStreams(); transport.Close() })
	s.contact = newContact(raft.ServerID(s.ID()), c.Clock.Boot, s.raftServers)
	var inner raft.Transport = transport
	if c.wrapTransport != nil {
		inner = c.wrapTransport(inner)
	}
	r := raft.DefaultConfig()
	r.LocalID = raft.ServerID(s.ID())
	r.HeartbeatTimeout, r.ElectionTimeout, r.LeaderLeaseTimeout = c.Timing.Heartbeat, c.Timing.Election, c.Timing.Lease
	r.MaxAppendEntries = maxAppendEntries
	r.ShutdownOnRemove = false
	r.TrailingLogs, r.SnapshotThreshold, r.SnapshotInterval = c.Snapshots.Trailing, c.Snapshots.Entries, c.Snapshots.Every
	r.NotifyCh = s.notify
	r.NoLegacyTelemetry = true
	r.Logger = s.logger.Named("raft")
	s.raft, err = raft.NewRaft(r, s.newMachine(), s.entries, &watchedStable{s.store, s.watch}, snapshots,
		&contactTransport{NetworkTransport: transport, inner: inner, contact: s.contact, clockWrong: &s.clockWrong,
			leads: s.leadsIn, stop: s.life.Done()})
	if err != nil {
		return false, fmt.Errorf("raft: %w", err)
	}
	*undo = append(*undo, func() { s.raft.Shutdown().Error() })
	s.proposer = newProposer(s.raft.Apply, func() error { return s.raft.Barrier(enqueueLimit).Error() }, c.Clock.Wall, &transferGuard{limit: 2 * c.Timing.Election, fatal: c.Fatal, now: c.Clock.Boot})
	*undo = append(*undo, s.proposer.close)
	return !existing, nil
}

// leadsIn says whether this server leads in term, and has begun its duties.
func (s *Server) leadsIn(term uint64) bool {
	l := s.leadership.Load()
	return l != nil && l.term == term
}

// ID is the server's id: random, and new for each empty data directory.
func (s *Server) ID() string { return s.dir.id }

// GossipAddress is where other servers reach this one's gossip: what they put into Join.
func (s *Server) GossipAddress() string { return s.gossip.at }

// raftServers is raft's newest configuration.
func (s *Server) raftServers() []raft.Server {
	future := s.raft.GetConfiguration()
	if future.Error() != nil {
		return nil
	}
	return future.Configuration().Servers
}

// Shutdown stops everything that Start started, and waits. A leader hands over first, to a follower that is well.
func (s *Server) Shutdown() error {
	s.shutdownOnce.Do(func() { s.shutdownErr = s.shutdown() })
	return s.shutdownErr
}

func (s *Server) shutdown() error {
	s.handOver()
	s.stopped(errStopping)
	s.proposer.close() // while raft can still answer what is in flight
	s.gossip.close()
	err := s.raft.Shutdown().Error() // and the transport with it
	s.wait.Wait()
	s.watch.close()
	if e := s.store.Close(); err == nil {
		err = e
	}
	s.dir.close()
	return err
}

// handOver transfers leadership once, and only to a voter heard of within 100 ms that holds the whole log: a leader whose
// transfers fail may refuse writes for good.
func (s *Server) handOver() {
	l := s.leadership.Load()
	if l == nil {
		return
	}
	for _, server := range s.raftServers() {
		p, ok := s.contact.peer(l.term, server.ID)
		fresh := ok && s.config.Clock.Boot()-p.Sent < Boot(transferRecent) && p.Match >= s.raft.LastIndex()
		if server.Suffrage != raft.Voter || !fresh {
			continue
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), 2*s.config.Timing.Election, errors.New("it took too long"))
		defer cancel()
		if err := await(ctx, s.raft.LeadershipTransferToServer(server.ID, server.Address)); err != nil {
			s.logger.Warn("could not hand over leadership; the others will elect a leader", "error", err)
		}
		return
	}
}

// snapshotByBytes asks for a snapshot when the log has grown by so much; raft itself counts only entries.
func (s *Server) snapshotByBytes() {
	tick := time.NewTicker(snapshotEvery / 6)
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		}
		if s.logs.bytes.Load() < snapshotBytes {
			continue
		}
		s.logs.bytes.Store(0)
		if err := s.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
			s.logger.Warn("could not make a snapshot", "error", err)
		}
	}
}

// Leader gives the RPC address of the leader, "" when none is known, and whether it is this server.
func (s *Server) Leader() (address string, self bool) {
	at, id := s.raft.LeaderWithID()
	return string(at), string(id) == s.ID()
}

// LeaderChanged is closed at the next change of leader.
func (s *Server) LeaderChanged() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaderMoved
}

// followLeader tells who waits when the leader changes.
func (s *Server) followLeader() {
	seen := make(chan raft.Observation, 16)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, is := o.Data.(raft.LeaderObservation)
		return is
	})
	s.raft.RegisterObserver(observer)
	defer s.raft.DeregisterObserver(observer)
	for {
		s.leaderMayHaveMoved()
		select {
		case <-s.life.Done():
			return
		case <-seen:
		}
	}
}

func (s *Server) leaderMayHaveMoved() {
	address, _ := s.Leader()
	s.mu.Lock()
	defer s.mu.Unlock()
	if address != s.leader {
		s.leader = address
		close(s.leaderMoved)
		s.leaderMoved = make(chan struct{})
	}
}

// nudge asks raft for heartbeats now, for whoever waits for quorum contact. VerifyLeader sends them; its own answer, which
// counts evidence from before the call, is not used.
func (s *Server) nudge() {
	for {
		select {
		case <-s.life.Done():
			return
		case <-s.nudges:
			s.raft.VerifyLeader()
		}
	}
}

func (s *Server) askHeartbeat() {
	select {
	case s.nudges <- struct{}{}:
	default:
	}
}

func (s *Server) wakeMembers() {
	select {
	case s.members <- struct{}{}:
	default:
	}
}

// ReadIndex gives, at the leader, the index that a linearizable read must reach: no write acknowledged, and nothing read
// linearizably, before the call is later. It waits for quorum contact later than the call.
func (s *Server) ReadIndex(ctx context.Context) (muster.Index, error) {
	l, err := s.leading(ctx)
	if err != nil {
		return 0, err
	}
	since := s.config.Clock.Boot()
	index, err := s.lastCommand(s.raft.CommitIndex())
	if err != nil {
		return 0, unavailable("the newest log entry can't be read: %v", err)
	}
	if err := l.inContact(ctx, since); err != nil {
		return 0, err
	}
	return index, nil
}

// lastCommand gives the index of the last entry up to commit that the state has seen or will see: elections, barriers and
// changes of membership take places in the log that the state never reaches by itself.
func (s *Server) lastCommand(commit uint64) (muster.Index, error) {
	have := uint64(s.hub.newest().index)
	for at := commit; at > have; at-- {
		var entry raft.Log
		if err := s.entries.GetLog(at, &entry); err != nil {
			return 0, err
		}
		if entry.Type == raft.LogCommand {
			return muster.Index(at), nil
		}
	}
	return muster.Index(have), nil
}

// WaitApplied waits until the local state has reached index.
func (s *Server) WaitApplied(ctx context.Context, index muster.Index) error {
	if err := s.hub.waitApplied(ctx, index); err != nil {
		return unavailable("this server is behind: it has reached %d, not %d: %v", s.hub.newest().index, index, err)
	}
	return nil
}

// Watch wakes (at most one pending wake-up) whenever one of the jobs or nodes changed; nil, nil: whenever anything did.
func (s *Server) Watch(jobs []muster.JobID, nodes []muster.NodeID) (wake <-chan struct{}, stop func()) {
	return s.hub.watch(jobs, nodes)
}
