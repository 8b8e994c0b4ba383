package simulation

import (
	"slices"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// session is a worker's stream at a server: what the rpc package's session does with goroutines, over the same views.
type session struct {
	s      *server
	stream *stream
	id     string
	node   muster.NodeID
	made   int
	over   bool

	newest  muster.Version
	sent    map[muster.AllocID]*wire.Desired
	full    bool
	shown   string
	serving bool // views are shown

	reports    []*wire.Report
	committing bool
}

const (
	maxReported = 4096
	renewLimit  = 3 * time.Second
)

// accept serves a worker's stream.
func (s *server) accept(st *stream) *session {
	v := &session{s: s, stream: st, sent: map[muster.AllocID]*wire.Desired{}, full: true}
	st.over[1] = v.end
	return v
}

// inOrder gives the sessions that show views, in the order they began.
func (s *server) inOrder() []*session {
	out := make([]*session, 0, len(s.watching))
	for v := range s.watching {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b *session) int { return a.made - b.made })
	return out
}

func (v *session) end() {
	if v.over {
		return
	}
	v.over = true
	delete(v.s.watching, v)
	v.stream.end(1)
	if v.s.sessions[v.node] == v {
		delete(v.s.sessions, v.node)
		v.s.pass(&wire.NodeRenew{Node: uint32(v.node), Session: v.id, Silent: true}, func(bool, error) {})
	}
}

func (v *session) refuse(err *muster.Error) {
	v.s.w.say(v.s.name, "refuses a worker: %v", err)
	v.send(&wire.ToWorker{Message: &wire.ToWorker_Error{Error: wire.ErrorOf(err)}})
	v.end()
}

func (v *session) send(m *wire.ToWorker) {
	if !v.over {
		agent := v.stream.ends[0]
		v.stream.send(1, func() { v.s.w.machineOf(agent).agent.hears(v.stream, m) })
	}
}

// hears takes what the worker says.
func (v *session) hears(m *wire.FromWorker) {
	switch {
	case v.over:
	case m.GetHello() != nil:
		v.register(m.GetHello())
	case m.GetReport() != nil:
		v.reports = append(v.reports, m.GetReport())
		v.commitReports()
	case m.GetRenew() != nil:
		renew := m.GetRenew()
		v.s.pass(&wire.NodeRenew{Node: uint32(v.node), Session: v.id, Renew: renew}, func(ok bool, err error) {
			switch {
			case err != nil || v.over:
			case !ok:
				v.end()
			default:
				v.send(&wire.ToWorker{Message: &wire.ToWorker_Renewed{Renewed: &wire.Renewed{Seq: renew.GetSeq()}}})
			}
		})
	}
}

// reach waits until the local state is at least at version.
func (v *session) reach(version muster.Version, do func()) {
	if !v.s.snapshot().Version().Before(version) || v.s.w.bugs.ServesThePast {
		do()
		return
	}
	v.s.waitApplied(uint64(version.Index), hold, func(bool) {
		if at := v.s.snapshot().Version(); at.Before(version) {
			v.refuse(muster.Errorf(muster.KindUnavailable, "this server's state is at %s, and the worker has seen %s", at, version))
			return
		}
		do()
	})
}

func (v *session) register(hello *wire.RegisterNode) {
	v.id = hello.GetNode().GetSession()
	seen := muster.Version{Epoch: muster.Epoch(hello.GetSeen().GetEpoch()), Index: muster.Index(hello.GetSeen().GetIndex())}
	v.reach(seen, func() {
		if v.over {
			return
		}
		hello.Replaces = wire.ReaderOf(v.s.snapshot()).SessionOf(hello.GetNode().GetName())
		if v.s.w.bugs.HellosOvertake {
			hello.Replaces = ""
		}
		v.s.commitCommand(&wire.Command{Command: &wire.Command_RegisterNode{RegisterNode: hello}}, func(r committedReply, err error) {
			switch {
			case v.over:
			case err != nil:
				v.refuse(muster.Errorf(muster.KindUnavailable, "%v", err))
			case r.result.Err != nil:
				v.refuse(r.result.Err)
			default:
				v.registered(r, seen)
			}
		})
	})
}

func (v *session) registered(r committedReply, seen muster.Version) {
	s := v.s
	registered := muster.Version{Epoch: s.snapshot().Version().Epoch, Index: muster.Index(r.index)}
	v.reach(registered, func() {
		if v.over {
			return
		}
		v.node = r.result.Node
		v.send(&wire.ToWorker{Message: &wire.ToWorker_Welcome{Welcome: &wire.Welcome{
			Node: uint32(v.node), Cluster: "simulated", Kill: wire.AllocIDsOf(r.result.Kill)}}})
		v.newest = registered
		if v.newest.Before(seen) {
			v.newest = seen
		}
		if older := s.sessions[v.node]; older != nil {
			delete(s.sessions, v.node)
			older.end()
		}
		s.w.counts.Sessions++
		v.made = s.w.counts.Sessions
		s.sessions[v.node], s.watching[v] = v, true
		v.serving = true
		v.wake()
		v.commitReports()
	})
}

// wake shows what changed, never a view older than the one before.
func (v *session) wake() {
	if v.over || !v.serving {
		return
	}
	reader := wire.ReaderOf(v.s.snapshot())
	version := reader.Version()
	if version.Before(v.newest) && !v.s.w.bugs.ServesThePast {
		return
	}
	v.newest = version
	view := reader.NodeView(v.node, v.sent)
	if v.full || len(view.Desired) > 0 || len(view.Gone) > 0 || view.NodeState != v.shown {
		view.Full = v.full
		v.full, v.shown = false, view.NodeState
		v.send(&wire.ToWorker{Message: &wire.ToWorker_View{View: view}})
	}
}

// commitReports commits what waits, and acknowledges it.
func (v *session) commitReports() {
	if v.committing || v.node == 0 || len(v.reports) == 0 {
		return
	}
	v.committing = true
	reports := v.reports
	v.reports = nil
	command := &wire.ReportAllocs{Node: uint32(v.node)}
	for _, r := range reports {
		command.Allocs = append(command.Allocs, r.GetAllocs()...)
	}
	var try func()
	try = func() {
		if v.over {
			return
		}
		v.s.commitCommand(&wire.Command{Command: &wire.Command_ReportAllocs{ReportAllocs: command}}, func(r committedReply, err error) {
			switch {
			case v.over:
			case err != nil:
				v.s.after(time.Millisecond, try)
			case r.result.Err != nil:
				v.end()
			default:
				for _, r := range reports {
					v.send(&wire.ToWorker{Message: &wire.ToWorker_Ack{Ack: &wire.Ack{Seq: r.GetSeq()}}})
				}
				v.committing = false
				v.commitReports()
			}
		})
	}
	try()
}

// renewBatch is renewals on their way to the leader, together.
type renewBatch struct {
	in   []*wire.NodeRenew
	done []func(bool, error)
}

// pass gives the leader a renewal, together with those that gather while a call is under way.
func (s *server) pass(r *wire.NodeRenew, done func(bool, error)) {
	if s.batch == nil {
		s.batch = &renewBatch{}
	}
	s.batch.in, s.batch.done = append(s.batch.in, r), append(s.batch.done, done)
	s.passBatch()
}

func (s *server) passBatch() {
	if s.renewing || s.batch == nil {
		return
	}
	b := s.batch
	s.batch, s.renewing = nil, true
	finish := func(reply *wire.RenewBatchReply, err error) {
		s.renewing = false
		for i, done := range b.done {
			done(err == nil && reply.GetOk()[i], err)
		}
		s.passBatch()
	}
	s.atLeader(renewLimit, func(to *server, reply func(any, error)) {
		to.renew(&wire.RenewBatch{Renewals: b.in}, reply)
	}, func(answer any, _ bool, err error) {
		if err != nil {
			finish(nil, err)
			return
		}
		reply := answer.(*wire.RenewBatchReply)
		if s.w.bugs.RenewsAheadOfState {
			finish(reply, nil)
			return
		}
		s.waitApplied(reply.GetIndex(), renewLimit, func(reached bool) {
			if !reached {
				err = errTimeout
			}
			finish(reply, err)
		})
	})
}
