package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// Whatever a decoder takes it must give back the same: else a follower that decodes, encodes into a snapshot and restores would
// hold other rows.

func FuzzDecodeEntry(f *testing.F) {
	for _, c := range commands {
		f.Add(EncodeEntry(state.Entry{Stamp: 1, Commands: []state.Command{c}}))
	}
	f.Add(EncodeEntry(oneJob()))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		entry, err := DecodeEntry(data)
		if err != nil {
			return
		}
		again, err := DecodeEntry(EncodeEntry(entry))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(entry, again); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzDecodeRow(f *testing.F) {
	f.Add(EncodeRow(&muster.Job{ID: 7, Name: "train", Attempts: []muster.Attempt{{Number: 1}}}))
	f.Add(EncodeRow(&muster.Node{ID: 1, GPUs: []muster.GPU{{UUID: "GPU-1"}}}))
	f.Add(EncodeRow(&muster.Allocation{ID: muster.AllocID{Epoch: 1, Counter: 2}}))
	f.Add(EncodeRow(&state.RequestRow{Result: state.Result{Err: muster.Errorf(muster.KindDenied, "no")}}))
	f.Add(EncodeRow(&state.Cluster{ID: "c", Epoch: 1}))
	f.Add(EncodeRow(&muster.Queue{Name: "default"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		row, err := DecodeRow(data)
		if err != nil {
			return
		}
		again, err := DecodeRow(EncodeRow(row))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row, again); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzDecodeJobSpec(f *testing.F) {
	f.Add(Encode(JobSpecOf(usualSpec())))
	f.Fuzz(func(t *testing.T, data []byte) {
		var x JobSpec
		if proto.Unmarshal(data, &x) != nil {
			return
		}
		spec, err := x.Domain()
		if err != nil {
			return
		}
		spec.FillDefaults()
		_ = spec.Validate() // must not panic, whatever it says
	})
}

// usualSpec is a job as most are.
func usualSpec() *muster.JobSpec {
	spec := muster.DefaultJobSpec()
	spec.Name = "train-7b"
	g := muster.DefaultGroup()
	g.Count = 2
	g.Task.Name = "train"
	g.Task.Command = "torchrun"
	g.Task.Args = []string{"train.py", "--config", "conf/7b.yaml"}
	g.Task.Env = []muster.EnvVar{{Name: "NCCL_DEBUG", Value: "WARN"}}
	g.Task.Resources = muster.Resources{GPUs: 8, Models: []string{"H100"}}
	spec.Groups = []muster.Group{g}
	spec.FillDefaults()
	return &spec
}

func oneJob() state.Entry {
	return state.Entry{Stamp: 1790000000000, Commands: []state.Command{&state.Submit{
		Header: state.Header{RequestID: "0f8fad5b-d9cb-469f-a165-70867728950e", User: "ann"},
		Specs:  []*muster.JobSpec{usualSpec()},
	}}}
}

func BenchmarkEncodeEntryOfOneJob(b *testing.B) {
	entry := oneJob()
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(EncodeEntry(entry))))
	}
}

func BenchmarkDecodeEntryOfOneJob(b *testing.B) {
	data := EncodeEntry(oneJob())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeEntry(data); err != nil {
			b.Fatal(err)
		}
	}
}
