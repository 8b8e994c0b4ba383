package state

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster"
)

// fill gives every field below v a value of its own.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n) % 200)
	default:
		panic(v.Kind().String())
	}
}

// leaves calls f with each single value below v, and shrinks each slice by one; f sees v changed and may not keep it.
func leaves(v reflect.Value, path string, f func(path string)) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	try := func(change func()) {
		change()
		f(path)
		v.Set(old)
	}
	switch v.Kind() {
	case reflect.Pointer:
		leaves(v.Elem(), path, f)
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			leaves(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
		try(func() { v.Set(v.Slice(0, 1)) })
	case reflect.Array:
		for i := range v.Len() {
			leaves(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	case reflect.String:
		try(func() { v.SetString(v.String() + "x") })
	case reflect.Bool:
		try(func() { v.SetBool(!v.Bool()) })
	case reflect.Int, reflect.Int64:
		try(func() { v.SetInt(v.Int() + 1) })
	default:
		try(func() { v.SetUint(v.Uint() + 1) })
	}
}

func checkEveryField[R any](t *testing.T, name string, hash func(*R) string, except ...string) {
	t.Helper()
	row, n := new(R), 0
	fill(reflect.ValueOf(row).Elem(), &n)
	seen := map[string]string{hash(row): "the row itself"}
	leaves(reflect.ValueOf(row).Elem(), name, func(path string) {
		if slices.ContainsFunc(except, func(e string) bool { return strings.HasPrefix(path, e) }) {
			return
		}
		h := hash(row)
		if other, ok := seen[h]; ok {
			t.Errorf("a change of %s hashes like %s", path, other)
		}
		seen[h] = path
	})
}

func TestEveryFieldOfEveryRowIsInTheDigest(t *testing.T) {
	var e encoder
	row := func(h uint64) string { return fmt.Sprint(h) }
	checkEveryField(t, "Cluster", func(r *Cluster) string { return row(e.clusterHash(r)) })
	checkEveryField(t, "Job", func(r *muster.Job) string { return row(rowHash(&e, writeJob, r)) })
	checkEveryField(t, "Allocation", func(r *muster.Allocation) string { return row(rowHash(&e, writeAllocation, r)) })
	checkEveryField(t, "Node", func(r *muster.Node) string { return row(rowHash(&e, writeNode, r)) })
	checkEveryField(t, "Queue", func(r *muster.Queue) string { return row(rowHash(&e, writeQueue, r)) })
	checkEveryField(t, "ShapeRow", func(r *ShapeRow) string { return row(rowHash(&e, writeShapeRow, r)) })
	checkEveryField(t, "HoldRow", func(r *HoldRow) string { return row(rowHash(&e, writeHold, r)) })
	checkEveryField(t, "UsageRow", func(r *UsageRow) string { return row(rowHash(&e, writeUsage, r)) })
	checkEveryField(t, "HistoryRow", func(r *HistoryRow) string { return row(rowHash(&e, writeHistory, r)) })
	checkEveryField(t, "RequestRow", func(r *RequestRow) string { return row(rowHash(&e, writeRequest, r)) })
	// The spec stands in its row's hash by its id, the hash of all its fields.
	checkEveryField(t, "SpecRow", func(r *SpecRow) string { return row(rowHash(&e, writeSpecRow, r)) }, "SpecRow.Spec")
	checkEveryField(t, "JobSpec", func(s *muster.JobSpec) string { id := e.specID(s); return string(id[:]) })
}

func TestEveryFieldOfARequestIsInItsContentHash(t *testing.T) {
	content := func(r request) string {
		s := New()
		h := s.requestContent(r)
		return string(h[:])
	}
	checkEveryField(t, "Submit", func(c *Submit) string { return content(c) }, "Submit.Header.RequestID", "Submit.Groups")
	checkEveryField(t, "Cancel", func(c *Cancel) string { return content(c) }, "Cancel.Header.RequestID")
	checkEveryField(t, "Release", func(c *Release) string { return content(c) }, "Release.Header.RequestID")
	checkEveryField(t, "Hold", func(c *Hold) string { return content(c) }, "Hold.Header.RequestID")
	checkEveryField(t, "SetPriority", func(c *SetPriority) string { return content(c) }, "SetPriority.Header.RequestID")
	checkEveryField(t, "Requeue", func(c *Requeue) string { return content(c) }, "Requeue.Header.RequestID")
	checkEveryField(t, "RemoveNodes", func(c *RemoveNodes) string { return content(c) }, "RemoveNodes.Header.RequestID")
	checkEveryField(t, "LabelNode", func(c *LabelNode) string { return content(c) }, "LabelNode.Header.RequestID")
	checkEveryField(t, "DrainNodes", func(c *DrainNodes) string { return content(c) }, "DrainNodes.Header.RequestID")
	checkEveryField(t, "UndrainNodes", func(c *UndrainNodes) string { return content(c) }, "UndrainNodes.Header.RequestID")
	checkEveryField(t, "ApplyQueues", func(c *ApplyQueues) string { return content(c) }, "ApplyQueues.Header.RequestID")
	checkEveryField(t, "FenceNode", func(c *FenceNode) string { return content(c) }, "FenceNode.Header.RequestID")
}

// The hashes lie in snapshots and are compared between servers of different releases: these values never change.
func TestHashesAreFrozen(t *testing.T) {
	if got := hash64([]byte("muster, muster")); got != 0xe3d877ec375e9970 {
		t.Errorf("hash64: %#x", got)
	}
	var e encoder
	if got := fmt.Sprintf("%x", e.specID(gang("train", 2, 8))); got != "b1b6adbf67e2009fb526c5c25b58bb36" {
		t.Errorf("spec: %s", got)
	}
}

func TestDigestsAreKeptAtRoundPositions(t *testing.T) {
	s := New()
	s.Apply(Entry{Stamp: 1}, 999, term)
	at999 := s.Snapshot().Digest()
	s.Apply(Entry{Stamp: 2}, 1002, term)
	if got, ok := s.DigestAt(1000); !ok || got != at999 {
		t.Errorf("at 1000: %x %v, want %x", got, ok, at999)
	}
	s.Apply(Entry{Stamp: 3}, 2000, term)
	at2000 := s.Snapshot().Digest()
	if got, ok := s.DigestAt(2000); !ok || got != at2000 {
		t.Errorf("at 2000: %x %v, want %x", got, ok, at2000)
	}
	s.Apply(Entry{Stamp: 4}, 2001, term)
	for index, want := range map[muster.Index]uint64{1000: at999, 2000: at2000, 2001: s.digest()} {
		if got, ok := s.Snapshot().DigestAt(index); !ok || got != want {
			t.Errorf("at %d: %x %v, want %x", index, got, ok, want)
		}
	}
	if _, ok := s.DigestAt(1500); ok {
		t.Errorf("a digest at 1500 was kept")
	}
}

func TestRestoreRefusesRowsThatDoNotFit(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8))
	w.run(w.submit(gang("train", 2, 2)), "gpu-01", "gpu-01")
	w.do(&Cancel{Header: Header{RequestID: "r"}, Mode: muster.StopSave})
	rows := slices.Collect(w.snapshot().Rows())
	restore := func(rows []Row) (*State, error) {
		return Restore(w.index, func(yield func(Row, error) bool) {
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
		})
	}
	s, err := restore(rows)
	if err != nil || s.digest() != w.s.digest() || s.Snapshot().Version() != w.snapshot().Version() {
		t.Fatalf("%v", err)
	}
	for i, row := range rows {
		without := slices.Delete(slices.Clone(rows), i, i+1)
		switch row.(type) {
		case *RequestRow, *Event, *UsageRow, *HistoryRow: // nothing refers to them, and use is counted anew
		default:
			if _, err := restore(without); err == nil {
				t.Errorf("restored without %T", row)
			}
		}
		if _, err := restore(append(slices.Clone(rows), row)); err == nil {
			t.Errorf("restored with %T twice", row)
		}
	}
	var nilJob *muster.Job
	for _, bad := range []Row{nil, "a string", &muster.Job{ID: 9, Queue: "default"}, nilJob} {
		if _, err := restore(append(slices.Clone(rows), bad)); err == nil {
			t.Errorf("restored with %T", bad)
		}
	}
	counted := *w.node("gpu-01")
	counted.FreeSlots = counted.FreeSlots.With(0)
	for i, row := range rows {
		if _, is := row.(*muster.Node); is {
			rows[i] = &counted
		}
	}
	if _, err := restore(rows); err == nil || !strings.Contains(err.Error(), "a recount gives") {
		t.Errorf("a wrong counter: %v", err)
	}
	broken := errors.New("checksum does not match")
	var failing iter.Seq2[Row, error] = func(yield func(Row, error) bool) { yield(nil, broken) }
	if _, err := Restore(1, failing); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
