package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

const term = 3

// log makes a committed log entry of commands.
func log(index uint64, commands ...state.Command) *raft.Log {
	return &raft.Log{Type: raft.LogCommand, Index: index, Term: term,
		Data: wire.EncodeEntry(state.Entry{Stamp: muster.Time(1_790_000_000_000 + index), Commands: commands})}
}

func spec(name string, gpus int) *muster.JobSpec {
	s := muster.DefaultJobSpec()
	s.Name = name
	g := muster.DefaultGroup()
	g.Task.Command = "true"
	g.Task.Resources.GPUs = gpus
	s.Groups = []muster.Group{g}
	s.FillDefaults()
	return &s
}

func submit(request string, specs ...*muster.JobSpec) state.Command {
	return &state.Submit{Header: state.Header{RequestID: request, User: "ann"}, Specs: specs, Pend: true}
}

func node(name string, gpus int) state.Command {
	n := muster.Node{Name: name, Address: name + ":4691", IP: "10.0.0.1", Hardware: "hw-" + name, Boot: "b", Instance: "i", Session: "s",
		MilliCores: 64000, Memory: 512 * muster.GiB, Fencing: "strong", Version: "0.1.0", PortLow: 20000, PortHigh: 29999}
	for i := range gpus {
		n.GPUs = append(n.GPUs, muster.GPU{UUID: fmt.Sprintf("GPU-%s-%d", name, i), Model: "NVIDIA H100 80GB HBM3",
			Memory: 80 * muster.GiB, Health: muster.GPUHealthy})
	}
	return &state.RegisterNode{Node: n}
}

// lived applies entries that leave a row in every table, one of the jobs placed.
func lived(t testing.TB, f *FSM) {
	t.Helper()
	f.ApplyBatch([]*raft.Log{
		log(1, &state.InitCluster{ClusterID: "lab"}),
		log(2, node("w1", 8), node("w2", 8)),
		log(3, submit("r-1", spec("train", 8)), submit("r-2", spec("eval", 1), spec("late", 64))),
	})
	w1, _ := f.Published().Snapshot.NodeNamed("w1")
	cores, memory := w1.Share(&muster.Resources{GPUs: 8})
	answer := f.Apply(log(4, &state.CommitPlan{Term: term, Gangs: []state.GangPlacement{{Job: 1, Attempt: 1,
		Ranks: []state.RankPlacement{{Node: w1.ID, Slots: muster.SlotRange(8), MilliCores: cores, Memory: memory}}}}}))
	if r := answer.([]state.Result)[0]; r.Err != nil || len(r.Refused) > 0 {
		t.Fatalf("the plan was not taken: %+v", r)
	}
}

func file(t testing.TB, f *FSM) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := WriteSnapshot(&out, f.Published().Snapshot); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestEntriesAreAppliedAndOneRootIsPublishedForABatch(t *testing.T) {
	var roots []*Published
	f := New(func(p *Published) { roots = append(roots, p) }, nil)
	answers := f.ApplyBatch([]*raft.Log{
		log(5, node("w1", 1)),
		{Type: raft.LogConfiguration, Index: 6, Term: term},
		log(7, submit("r-1", spec("one", 1)), submit("r-2", spec("two", 1))),
	})
	if len(roots) != 1 || f.Published() != roots[0] {
		t.Fatalf("%d roots were published", len(roots))
	}
	p := roots[0]
	if p.Index != 7 || p.Term != term || p.Everything || p.Snapshot.Version().Index != 7 {
		t.Errorf("published %+v", p)
	}
	if diff := cmp.Diff(state.Changed{Jobs: []muster.JobID{1, 2}, Nodes: []muster.NodeID{1}, Queues: []string{"default"}}, p.Changed); diff != "" {
		t.Error(diff)
	}
	if len(answers) != 3 || answers[1] != nil {
		t.Fatalf("answers %v", answers)
	}
	results := answers[2].([]state.Result)
	if len(results) != 2 || results[0].Jobs[0] != 1 || results[1].Jobs[0] != 2 {
		t.Errorf("results %+v", results)
	}
	if answer := f.Apply(&raft.Log{Type: raft.LogNoop, Index: 8}); answer != nil || len(roots) != 1 {
		t.Error("an entry without commands changed something")
	}
}

func TestAnEntryOfTheFutureStopsTheServer(t *testing.T) {
	unknownCommand := []byte{0x12, 0x04, 0x9a, 0x7d, 0x01, 'x'} // commands[0] with field 2003
	for name, data := range map[string][]byte{"command": unknownCommand, "bytes": {0xff}} {
		said := ""
		f := New(nil, func(message string) { said = message })
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the state machine went on", name)
				}
			}()
			f.Apply(&raft.Log{Type: raft.LogCommand, Index: 9, Data: data})
		}()
		if !strings.Contains(said, "entry 9 of the log can't be applied") {
			t.Errorf("%s: said %q", name, said)
		}
		if f.Published().Index != 0 {
			t.Error("something was published")
		}
	}
}

func TestARestoredServerIsAsItWas(t *testing.T) {
	f := New(nil, nil)
	lived(t, f)
	var told *Published
	g := New(func(p *Published) { told = p }, nil)
	g.Apply(log(1, node("other", 1)))
	if err := g.Restore(io.NopCloser(bytes.NewReader(file(t, f)))); err != nil {
		t.Fatal(err)
	}
	before, after := f.Published().Snapshot, g.Published().Snapshot
	if before.Digest() != after.Digest() || before.Version() != after.Version() || g.Published().Index != 4 {
		t.Errorf("digest %x, version %v became %x, %v", before.Digest(), before.Version(), after.Digest(), after.Version())
	}
	if told != g.Published() || !told.Everything {
		t.Errorf("told %+v", told)
	}
	if diff := cmp.Diff(rowsOf(before), rowsOf(after)); diff != "" {
		t.Error(diff)
	}
	// And goes on as the others do.
	next := log(5, submit("r-3", spec("more", 1)), submit("r-1", spec("train", 8)))
	if diff := cmp.Diff(f.Apply(next), g.Apply(next)); diff != "" {
		t.Error(diff)
	}
	if f.Published().Snapshot.Digest() != g.Published().Snapshot.Digest() {
		t.Error("the digests differ after one more entry")
	}
}

func rowsOf(s *state.Snapshot) []state.Row {
	var out []state.Row
	for row := range s.Rows() {
		out = append(out, row)
	}
	return out
}

type sink struct {
	bytes.Buffer
	closed, cancelled bool
	room              int // bytes that fit; 0 = any
}

func (s *sink) Write(p []byte) (int, error) {
	if s.room > 0 && s.Len()+len(p) > s.room {
		return 0, errors.New("no space left on device")
	}
	return s.Buffer.Write(p)
}
func (s *sink) Close() error  { s.closed = true; return nil }
func (s *sink) Cancel() error { s.cancelled = true; return nil }
func (s *sink) ID() string    { return "1" }

func TestASnapshotIsOfTheMomentItWasAskedFor(t *testing.T) {
	f := New(nil, nil)
	lived(t, f)
	want := file(t, f)
	frozen, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	f.Apply(log(5, submit("", spec("later", 1))))
	var into sink
	if err := frozen.Persist(&into); err != nil || !into.closed || into.cancelled {
		t.Fatalf("%v, closed %v, cancelled %v", err, into.closed, into.cancelled)
	}
	frozen.Release()
	if !bytes.Equal(want, into.Bytes()) {
		t.Error("entries applied since are in the file")
	}
	full := sink{room: 100}
	if err := frozen.Persist(&full); err == nil || !strings.Contains(err.Error(), "no space left") || !full.cancelled || full.closed {
		t.Errorf("on a full disk: %v, cancelled %v", err, full.cancelled)
	}
}
