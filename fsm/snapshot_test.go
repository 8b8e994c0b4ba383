package fsm

import (
	"bytes"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// release writes this format's files into testdata, once. What is there was released, and is never written again.
var release = flag.Bool("release", false, "write the files of the current format")

func TestReleasedBytesLoadForEver(t *testing.T) {
	f := New(nil, nil)
	lived(t, f)
	const entryName, snapshotName = "testdata/entry-1.bin", "testdata/snapshot-1.bin"
	entry := log(5, submit("r-9", spec("released", 2))).Data
	if *release {
		if _, err := os.Stat(snapshotName); err == nil {
			t.Fatal("format 1 was released already: make a new one")
		}
		for name, data := range map[string][]byte{entryName: entry, snapshotName: file(t, f)} {
			if err := os.WriteFile(name, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := filepath.Glob("testdata/snapshot-*.bin")
	if err != nil || len(files) == 0 {
		t.Fatalf("no released snapshots: %v", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		g := New(nil, nil)
		if err := g.Restore(io.NopCloser(bytes.NewReader(data))); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s := g.Published().Snapshot
		train, ok := s.Job(1)
		if !ok || train.Name != "train" || train.Phase != muster.JobPreparing || s.JobCount() != 3 || s.Cluster().ID != "lab" {
			t.Errorf("%s holds other things: %+v", name, train)
		}
		if w1, ok := s.NodeNamed("w1"); !ok || w1.FreeSlots != 0 || len(w1.GPUs) != 8 {
			t.Errorf("%s: node %+v", name, w1)
		}
		released, err := os.ReadFile(entryName)
		if err != nil {
			t.Fatal(err)
		}
		answer := g.Apply(&raft.Log{Type: raft.LogCommand, Index: 5, Term: term, Data: released})
		if results := answer.([]state.Result); results[0].Err != nil || results[0].Jobs[0] != 4 {
			t.Errorf("%s: the entry was answered %+v", entryName, results[0])
		}
		if job, ok := g.Published().Snapshot.Job(4); !ok || job.Name != "released" {
			t.Errorf("%s: job 4 is %+v", entryName, job)
		}
	}
}

func TestEveryDamagedByteAndEveryMissingEndIsRefused(t *testing.T) {
	f := New(nil, nil)
	lived(t, f)
	good := file(t, f)
	g := New(nil, nil)
	g.Apply(log(1, node("mine", 1)))
	old := g.Published()
	refused := func(data []byte, what string) string {
		err := g.Restore(io.NopCloser(bytes.NewReader(data)))
		if err == nil {
			t.Fatalf("%s was taken", what)
		}
		if g.Published() != old || g.state.Snapshot().Digest() != old.Snapshot.Digest() {
			t.Fatalf("%s changed the state", what)
		}
		return err.Error()
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x15
		message := refused(bad, "a flipped byte")
		if !strings.Contains(message, "damaged") && !strings.Contains(message, "format") && !strings.Contains(message, "checksum") {
			t.Errorf("byte %d flipped: %q does not say what is damaged", i, message)
		}
		if message := refused(good[:i], "a cut file"); !strings.Contains(message, "damaged") {
			t.Errorf("cut at byte %d: %q", i, message)
		}
	}
	for what, c := range map[string]struct {
		data []byte
		want string
	}{
		"something else": {[]byte("PK\x03\x04 a zip file"), "header is damaged: the file is no snapshot"},
		"nothing":        {nil, "header is damaged: the file ends in the middle"},
		"more":           {append(bytes.Clone(good), 'x'), "goes on after its end"},
		"a last byte":    {good[:len(good)-1], "checksum is damaged: the file ends in the middle"},
		"half":           {good[:len(good)/2], "is damaged: the file ends in the middle"},
	} {
		if message := refused(c.data, what); !strings.Contains(message, c.want) {
			t.Errorf("%s: %q, want %q", what, message, c.want)
		}
	}
	if err := g.Restore(io.NopCloser(bytes.NewReader(good))); err != nil {
		t.Errorf("the good file: %v", err)
	}
}

// sealed builds a file with a right checksum.
func sealed(header *wire.SnapshotHeader, rows ...state.Row) []byte {
	out := []byte(magic)
	part := func(b []byte) {
		out = binary.AppendUvarint(out, uint64(len(b)))
		out = append(out, b...)
	}
	part(wire.Encode(header))
	for _, row := range rows {
		part(wire.EncodeRow(row))
	}
	part(nil)
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

func TestWholeFilesThatDoNotFitAreRefused(t *testing.T) {
	f := New(nil, nil)
	lived(t, f)
	rows := rowsOf(f.Published().Snapshot)
	digest := f.Published().Snapshot.Digest()
	if _, err := ReadSnapshot(bytes.NewReader(sealed(&wire.SnapshotHeader{Format: 1, Index: 4, Digest: digest}, rows...))); err != nil {
		t.Fatal(err)
	}
	for want, data := range map[string][]byte{
		"has format 2, and this server knows only 1": sealed(&wire.SnapshotHeader{Format: 2}, rows...),
		"digest is 0000000000000001":                 sealed(&wire.SnapshotHeader{Format: 1, Index: 4, Digest: 1}, rows...),
		"don't fit together":                         sealed(&wire.SnapshotHeader{Format: 1, Index: 4, Digest: digest}, rows[1:]...),
	} {
		if _, err := ReadSnapshot(bytes.NewReader(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func FuzzReadSnapshot(f *testing.F) {
	m := New(nil, nil)
	lived(f, m)
	f.Add(file(f, m))
	f.Add(file(f, New(nil, nil)))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		// The checksum keeps chance out; a right one lets the rows behind it be tried too.
		if len(data) > 4 {
			body := data[:len(data)-4]
			data = binary.BigEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
		}
		s, err := ReadSnapshot(bytes.NewReader(data))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := WriteSnapshot(&out, s.Snapshot()); err != nil {
			t.Fatal(err)
		}
		again, err := ReadSnapshot(&out)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rowsOf(s.Snapshot()), rowsOf(again.Snapshot())); diff != "" {
			t.Error(diff)
		}
	})
}

func BenchmarkApplyBatchOf64Jobs(b *testing.B) {
	b.ReportAllocs()
	f := New(nil, nil)
	f.Apply(log(1, node("w1", 8)))
	index := uint64(1)
	for b.Loop() {
		logs := make([]*raft.Log, 1)
		var commands []state.Command
		for range 64 {
			commands = append(commands, submit("", spec("bench", 1)))
		}
		index++
		logs[0] = log(index, commands...)
		f.ApplyBatch(logs)
	}
}
