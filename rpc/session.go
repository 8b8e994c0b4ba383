package rpc

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// sessions knows the newest stream of each node on this server; a newer one ends the older.
type sessions struct {
	mu     sync.Mutex
	newest map[muster.NodeID]*session
}

// begin makes s the newest of its node and gives what to do at its end, which says whether it still was.
func (r *sessions) begin(s *session) (end func() (newest bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newest == nil {
		r.newest = make(map[muster.NodeID]*session)
	}
	if older := r.newest[s.node]; older != nil {
		older.end(errSuperseded)
	}
	r.newest[s.node] = s
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.newest[s.node] != s {
			return false
		}
		delete(r.newest, s.node)
		return true
	}
}

var errSuperseded = muster.Errorf(muster.KindConflict, "the node has begun another session")

type workersService struct {
	wire.UnimplementedWorkersServer
	server *Server
}

type workerStream = grpc.BidiStreamingServer[wire.FromWorker, wire.ToWorker]

// session is a worker's stream: what it says goes to the leader, what the state wants of it comes back.
type session struct {
	server  *Server
	stream  workerStream
	ctx     context.Context // ends with the session; its cause says why
	end     context.CancelCauseFunc
	id      string // the worker's own name for its session
	node    muster.NodeID
	reports chan *wire.Report
	renews  chan *wire.Renew
	running sync.WaitGroup

	sending sync.Mutex // one sends at a time
}

// Session serves one worker: hello, welcome, the full view, then changes, reports and renewals until either side ends it.
func (w *workersService) Session(stream workerStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello.GetNode() == nil {
		return muster.Errorf(muster.KindUsage, "the first message of a session must be a hello that names the node")
	}
	ctx, end := context.WithCancelCause(stream.Context())
	s := &session{server: w.server, stream: stream, ctx: ctx, end: end, id: hello.Node.Session,
		reports: make(chan *wire.Report, maxBehind), renews: make(chan *wire.Renew)}
	err = s.serve(hello)
	end(err)
	s.running.Wait()
	if refusal := asRefusal(err); refusal != nil {
		// Said as a message too: a worker tells a refusal, which a person must see, from a stream that broke.
		_ = s.send(&wire.ToWorker{Message: &wire.ToWorker_Error{Error: wire.ErrorOf(refusal)}})
	}
	return err
}

// maxBehind is how many reports of a worker may wait for a commit before the server stops reading from it.
const maxBehind = 1024

func asRefusal(err error) *muster.Error {
	var e *muster.Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

func (s *session) serve(hello *wire.RegisterNode) error {
	version, err := s.register(hello)
	if err != nil {
		return err
	}
	finish := s.server.streams.begin(s)
	defer func() {
		if finish() {
			s.silent()
		}
	}()
	s.running.Go(s.proposeReports)
	for range renewsAtOnce {
		s.running.Go(s.passRenewals)
	}
	go s.receive() // not waited for: Recv returns only once this stream has ended
	if err := s.showViews(version); err != nil {
		return err
	}
	if cause := context.Cause(s.ctx); cause != errWorkerLeft {
		return cause
	}
	return nil
}

// register commits the worker's hello and welcomes it. Nothing is answered before the local state has reached what the worker
// has seen, and its registration: an older view would have it stop what it must run.
func (s *session) register(hello *wire.RegisterNode) (muster.Version, error) {
	local := s.server.local
	seen := versionOf(hello.Seen)
	if err := s.reach(seen); err != nil {
		return seen, err
	}
	hello.Replaces = local.Read().SessionOf(hello.Node.Name)
	reply, err := s.server.commit(s.ctx, &wire.Command{Command: &wire.Command_RegisterNode{RegisterNode: hello}})
	if err != nil {
		return seen, err
	}
	if refused := reply.Result.GetErr(); refused != nil {
		return seen, refused.Domain()
	}
	registered := muster.Version{Epoch: local.Read().Version().Epoch, Index: muster.Index(reply.Index)}
	if err := s.reach(registered); err != nil {
		return seen, err
	}
	s.node = muster.NodeID(reply.Result.GetNode())
	welcome := &wire.Welcome{Node: reply.Result.GetNode(), Cluster: local.Status().GetCluster(), Kill: reply.Result.GetKill(),
		Checkpoints: s.server.shared}
	for _, server := range local.Servers() {
		if server.Address != "" {
			welcome.Servers = append(welcome.Servers, server.Address)
		}
	}
	if registered.Before(seen) {
		registered = seen
	}
	return registered, s.send(&wire.ToWorker{Message: &wire.ToWorker_Welcome{Welcome: welcome}})
}

// reach waits until the local state is at least at version, up to five seconds: then the worker had better ask elsewhere.
func (s *session) reach(version muster.Version) error {
	at := s.server.local.Read().Version()
	if !at.Before(version) {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, hold)
	defer cancel()
	err := s.server.local.WaitApplied(ctx, version.Index)
	if at = s.server.local.Read().Version(); at.Before(version) {
		return muster.Errorf(muster.KindUnavailable, "this server's state is at %s, and the worker has seen %s", at, version).
			WithHint("Another server may know more")
	}
	return lagging(err)
}

// showViews sends the full view, then what changes, never one older than the one before.
func (s *session) showViews(newest muster.Version) error {
	local := s.server.local
	wake, stop := local.Watch(nil, []muster.NodeID{s.node})
	defer stop()
	sent := make(map[muster.AllocID]*wire.Desired)
	shown := ""
	for full := true; ; {
		state := local.Read()
		if version := state.Version(); !version.Before(newest) {
			newest = version
			view := state.NodeView(s.node, sent)
			if full || len(view.Desired) > 0 || len(view.Gone) > 0 || view.NodeState != shown {
				view.Full = full
				if err := s.send(&wire.ToWorker{Message: &wire.ToWorker_View{View: view}}); err != nil {
					return err
				}
				full, shown = false, view.NodeState
			}
		}
		select {
		case <-wake:
		case <-s.ctx.Done():
			return nil
		}
	}
}

var errWorkerLeft = errors.New("the worker closed its stream")

// receive takes what the worker says until its stream ends.
func (s *session) receive() {
	for {
		message, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			err = errWorkerLeft
		}
		if err != nil {
			s.end(err)
			return
		}
		switch m := message.GetMessage().(type) {
		case *wire.FromWorker_Report:
			select {
			case s.reports <- m.Report:
			case <-s.ctx.Done():
				return
			}
		case *wire.FromWorker_Renew:
			select {
			case s.renews <- m.Renew:
			case <-s.ctx.Done():
				return
			}
		default:
			s.end(muster.Errorf(muster.KindUsage, "after its hello a worker sends reports and renewals only"))
			return
		}
	}
}

// maxReported bounds the allocations of one command of reports.
const maxReported = 4096

// proposeReports commits reports, all that wait in one command, and acknowledges each. While nothing can be committed it
// tries on: the worker keeps what was not acknowledged.
func (s *session) proposeReports() {
	for {
		var reports []*wire.Report
		command := &wire.ReportAllocs{Node: uint32(s.node)}
		select {
		case r := <-s.reports:
			reports, command.Allocs = append(reports, r), append(command.Allocs, r.Allocs...)
		case <-s.ctx.Done():
			return
		}
		for gathering := true; gathering && len(command.Allocs) < maxReported; {
			select {
			case r := <-s.reports:
				reports, command.Allocs = append(reports, r), append(command.Allocs, r.Allocs...)
			default:
				gathering = false
			}
		}
		if err := s.commitReports(command); err != nil {
			s.end(err)
			return
		}
		for _, r := range reports {
			if err := s.send(&wire.ToWorker{Message: &wire.ToWorker_Ack{Ack: &wire.Ack{Seq: r.Seq}}}); err != nil {
				s.end(err)
				return
			}
		}
	}
}

func (s *session) commitReports(command *wire.ReportAllocs) error {
	if len(command.Allocs) == 0 {
		return nil
	}
	for {
		_, err := s.server.propose(s.ctx, &wire.Command{Command: &wire.Command_ReportAllocs{ReportAllocs: command}})
		if err == nil || muster.KindOf(err) != muster.KindUnavailable || s.ctx.Err() != nil {
			return err
		}
		s.server.log.Debug("a worker's reports wait", "node", s.node, "error", err)
	}
}

// renewsAtOnce is how many renewals of one worker are under way at most: the first of a new allocation does not wait for the
// one before it.
const renewsAtOnce = 4

// passRenewals passes renewals on to the leader, together with those of other workers. One that gets no answer is left
// without: the worker counts its leases from what was answered.
func (s *session) passRenewals() {
	for {
		var renew *wire.Renew
		select {
		case renew = <-s.renews:
		case <-s.ctx.Done():
			return
		}
		ok, err := s.server.renew.do(s.ctx, &wire.NodeRenew{Node: uint32(s.node), Session: s.id, Renew: renew})
		switch {
		case err != nil:
			s.server.log.Debug("a renewal got no answer", "node", s.node, "error", err)
			continue
		case !ok:
			s.end(errSuperseded)
			return
		}
		if err := s.send(&wire.ToWorker{Message: &wire.ToWorker_Renewed{Renewed: &wire.Renewed{Seq: renew.Seq}}}); err != nil {
			s.end(err)
			return
		}
	}
}

// silent tells the leader that the worker's stream broke, so that it can suspect the node before its leases run out. Not when
// the stream ended because this server does.
func (s *session) silent() {
	if s.server.closing.Err() != nil {
		return
	}
	s.server.running.Go(func() {
		_, err := s.server.renew.do(s.server.closing, &wire.NodeRenew{Node: uint32(s.node), Session: s.id, Silent: true})
		if err != nil {
			s.server.log.Debug("a broken stream could not be told", "node", s.node, "error", err)
		}
	})
}

func (s *session) send(message *wire.ToWorker) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.stream.Send(message)
}

// versionOf reads a version as a worker sent it.
func versionOf(v *wire.Version) muster.Version {
	return muster.Version{Epoch: muster.Epoch(v.GetEpoch()), Index: muster.Index(v.GetIndex())}
}
