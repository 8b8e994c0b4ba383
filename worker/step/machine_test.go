package step

import (
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/exec"
)

func id(n uint64) muster.AllocID { return muster.AllocID{Epoch: 1, Counter: n} }

// recorder are hands that remember what was asked of them.
type recorder struct {
	Hands
	now      time.Time
	sent     []*wire.FromWorker
	prepared []muster.AllocID
	ends     []muster.AllocReport
}

func (r *recorder) Boot() exec.BootTime            { return exec.BootTime(r.now.UnixNano()) }
func (r *recorder) Wall() time.Time                { return r.now }
func (r *recorder) Gauges() *wire.Gauges           { return nil }
func (r *recorder) Send(m *wire.FromWorker)        { r.sent = append(r.sent, m) }
func (r *recorder) Warn(string, ...any)            {}
func (r *recorder) Ended(muster.AllocReport, bool) {}
func (r *recorder) Prepare(a *Assignment, _ exec.BootTime, _ []*wire.JournalRecord) {
	r.prepared = append(r.prepared, a.Alloc.ID)
}
func (r *recorder) End(end muster.AllocReport, _ *wire.JournalRecord) { r.ends = append(r.ends, end) }

// lone is a job of one rank, which may start with its placement.
func lone(id muster.AllocID) *wire.Desired {
	spec := &muster.JobSpec{Name: "hello", Queue: "default", Type: muster.Batch, Groups: []muster.Group{{
		Name: "hello", Count: 1, Task: muster.Task{Name: "main", Command: "true"}}}}
	return &wire.Desired{
		Alloc: wire.AllocationOf(&muster.Allocation{ID: id, Job: 7, Attempt: 1, Node: 1, Lease: time.Minute, Phase: muster.AllocPlaced, Go: true}),
		Spec:  wire.JobSpecOf(spec), Peers: []*wire.Peer{{Node: "node-1"}},
	}
}

func view(index muster.Index, desired ...*wire.Desired) *wire.ToWorker {
	return &wire.ToWorker{Message: &wire.ToWorker_View{View: &wire.View{
		Version: wire.VersionOf(muster.Version{Epoch: 1, Index: index}), Full: true, Desired: desired}}}
}

var welcome = &wire.ToWorker{Message: &wire.ToWorker_Welcome{Welcome: &wire.Welcome{Node: 1}}}

func TestAnAgentThatRunsNothingSaysWhy(t *testing.T) {
	r := &recorder{now: time.Unix(1000, 0)}
	m := New(Self{Node: "node-1", Refuses: "set allow_root = true"}, r, NewHistory(), nil, nil)
	s := m.SessionOpened(&muster.Node{})
	if m.Receive(s, welcome) != nil || m.Receive(s, view(10, lone(id(1)))) != nil {
		t.Fatal("the session is over")
	}
	m.Turn()
	if len(r.prepared) != 0 || len(r.ends) != 1 || r.ends[0].Class != muster.ClassPrepare || r.ends[0].Message != "set allow_root = true" {
		t.Fatalf("prepared %v, ended %+v", r.prepared, r.ends)
	}
	m.EndWritten(r.ends[0])
	m.Turn()
	if last := r.sent[len(r.sent)-1].GetReport(); len(last.GetAllocs()) != 1 {
		t.Fatalf("reported: %v", last)
	}
}

func TestWhatASessionSaidAfterItsEndCountsForNothing(t *testing.T) {
	r := &recorder{now: time.Unix(1000, 0)}
	m := New(Self{Node: "node-1"}, r, NewHistory(), nil, nil)
	old := m.SessionOpened(&muster.Node{})
	if m.Receive(old, view(10, lone(id(1)))) == nil {
		t.Fatal("a view before the welcome was taken")
	}
	s := m.SessionOpened(&muster.Node{})
	if m.Receive(old, welcome) != nil || m.Receive(old, view(10, lone(id(1)))) != nil || m.Len() != 0 || s.Welcomed() {
		t.Fatal("the old session's word counted")
	}
	if m.Receive(s, welcome) != nil || m.Receive(s, view(20, lone(id(1)))) != nil || m.Receive(s, view(19)) == nil {
		t.Fatal("an older view was taken")
	}
	m.Turn()
	if !m.Knows(id(1)) || len(r.prepared) != 1 {
		t.Fatal("the newest view does not stand")
	}
}
