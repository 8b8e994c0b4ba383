package wire

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// A filler gives every field of a struct a value of its own, so that a field that nobody converts, or that lands in another, is
// seen.
type filler struct{ last int }

// Enumerations can't count on: they get their highest value.
var highest = map[reflect.Type]uint64{
	reflect.TypeFor[muster.JobType]():      uint64(muster.Batch),
	reflect.TypeFor[muster.JobPhase]():     uint64(muster.JobCancelled),
	reflect.TypeFor[muster.AllocPhase]():   uint64(muster.AllocEnded),
	reflect.TypeFor[muster.Class]():        uint64(muster.ClassCollateral),
	reflect.TypeFor[muster.StopMode]():     uint64(muster.StopKill),
	reflect.TypeFor[state.EventKind]():     uint64(state.EventQueues),
	reflect.TypeFor[muster.GPUHealth]():    uint64(muster.GPULost),
	reflect.TypeFor[muster.SignalTarget](): uint64(muster.ToAll),
	reflect.TypeFor[muster.Replace]():      uint64(muster.ReplaceImmediately),
	reflect.TypeFor[muster.Start]():        uint64(muster.StartFirst),
}

func (f *filler) fill(t *testing.T, v reflect.Value) {
	t.Helper()
	f.last++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(t, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(t, v.Index(0))
		f.fill(t, v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			f.fill(t, v.Index(i))
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d", f.last))
		if v.Type() == reflect.TypeFor[muster.Kind]() {
			v.SetString(string(muster.KindConflict))
		} else if word, known := words[v.Type()]; known {
			v.SetString(word)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.last))
	case reflect.Uint8:
		if v.SetUint(uint64(f.last % 250)); v.Type() != reflect.TypeFor[uint8]() {
			top, known := highest[v.Type()]
			if !known {
				t.Fatalf("the test does not know the values of %s", v.Type())
			}
			v.SetUint(top)
		}
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.last))
	case reflect.Interface: // Entry.Commands
		v.Set(reflect.ValueOf(&state.Wake{Term: uint64(f.last), Jobs: []muster.JobID{muster.JobID(f.last + 1)}}))
		f.last++
	default:
		t.Fatalf("the test can't fill a %s", v.Type())
	}
}

// words are values of texts that are choices.
var words = map[reflect.Type]string{
	reflect.TypeFor[muster.Order]():      string(muster.OrderShortest),
	reflect.TypeFor[muster.Backfill]():   string(muster.BackfillConservative),
	reflect.TypeFor[muster.Preemption](): string(muster.PreemptShortest),
	reflect.TypeFor[muster.Objective]():  string(muster.ObjectiveCost),
}

// commands is the closed set; rows is what a snapshot holds.
var (
	commands = []state.Command{&state.Submit{}, &state.Cancel{}, &state.Release{}, &state.DrainNodes{}, &state.UndrainNodes{},
		&state.FenceNode{}, &state.ApplyQueues{}, &state.RegisterNode{}, &state.ReportAllocs{}, &state.InitCluster{}, &state.CommitPlan{},
		&state.EndLeases{}, &state.Wake{}, &state.DrainDue{}, &state.Purge{}, &state.Hold{}, &state.SetPriority{},
		&state.Requeue{}, &state.RemoveNodes{}, &state.LabelNode{}, &state.StartDue{}}
	rows = []state.Row{&state.Cluster{}, &state.SpecRow{}, &state.ShapeRow{}, &muster.Queue{}, &muster.Node{}, &muster.Job{},
		&muster.Allocation{}, &state.RequestRow{}, &state.Event{}, &state.HoldRow{}, &state.UsageRow{}, &state.HistoryRow{}}
)

func TestTheTestKnowsEveryCommand(t *testing.T) {
	paths, err := filepath.Glob("../fsm/state/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal("the sources of the state are not found: ", err)
	}
	var declared, known []string
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			// What makes a struct a command: func (c *Name) apply(…) Result
			if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "apply" && f.Recv != nil && !strings.HasSuffix(path, "_test.go") {
				declared = append(declared, f.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name)
			}
		}
	}
	for _, c := range commands {
		known = append(known, reflect.TypeOf(c).Elem().Name())
	}
	slices.Sort(declared)
	slices.Sort(known)
	if diff := cmp.Diff(declared, known); diff != "" {
		t.Errorf("commands declared and tested differ:\n%s", diff)
	}
}

func TestEveryFieldOfTheDomainSurvivesTheWire(t *testing.T) {
	check := func(name string, zero any, there func(any) proto.Message, back func(proto.Message) (any, error)) {
		t.Run(name, func(t *testing.T) {
			value := reflect.New(reflect.TypeOf(zero).Elem())
			var f filler
			f.fill(t, value.Elem())
			m := there(value.Interface())
			data, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			fresh := m.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(data, fresh); err != nil {
				t.Fatal(err)
			}
			got, err := back(fresh)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(value.Interface(), got); diff != "" {
				t.Errorf("a field is lost or changed on the way (-sent +got):\n%s", diff)
			}
		})
	}
	for _, c := range commands {
		check(reflect.TypeOf(c).Elem().Name(), c, func(v any) proto.Message { return CommandOf(v.(state.Command)) },
			func(m proto.Message) (any, error) { return m.(*Command).Domain() })
	}
	for _, r := range rows {
		check(reflect.TypeOf(r).Elem().Name(), r, func(v any) proto.Message { return RowOf(v) },
			func(m proto.Message) (any, error) { return m.(*Row).Domain() })
	}
	check("Entry", &state.Entry{}, func(v any) proto.Message { return EntryOf(*v.(*state.Entry)) },
		func(m proto.Message) (any, error) { e, err := m.(*Entry).Domain(); return &e, err })
	check("Result", &state.Result{}, func(v any) proto.Message { return ResultOf(v.(*state.Result)) },
		func(m proto.Message) (any, error) { r, err := m.(*Result).Domain(); return &r, err })
	check("Error", &muster.Error{}, func(v any) proto.Message { return ErrorOf(v.(*muster.Error)) },
		func(m proto.Message) (any, error) { return m.(*Error).Domain(), nil })
	check("JobSpec", &muster.JobSpec{}, func(v any) proto.Message { return JobSpecOf(v.(*muster.JobSpec)) },
		func(m proto.Message) (any, error) { return m.(*JobSpec).Domain() })
	check("AllocReport", &muster.AllocReport{}, func(v any) proto.Message { return AllocReportOf(v.(*muster.AllocReport)) },
		func(m proto.Message) (any, error) { r, err := m.(*AllocReport).Domain(); return &r, err })
	check("AllocID", &muster.AllocID{}, func(v any) proto.Message { return AllocIDOf(*v.(*muster.AllocID)) },
		func(m proto.Message) (any, error) { id, err := m.(*AllocID).Domain(); return &id, err })
	check("Version", &muster.Version{}, func(v any) proto.Message { return VersionOf(*v.(*muster.Version)) },
		func(m proto.Message) (any, error) { x, err := m.(*Version).Domain(); return &x, err })
	check("Stop", &muster.Stop{}, func(v any) proto.Message { return StopOf(*v.(*muster.Stop)) },
		func(m proto.Message) (any, error) { s, err := m.(*Stop).Domain(); return &s, err })
}

// filled gives one entry with every command and one row of each table, all fields filled.
func filled(t *testing.T) (state.Entry, []state.Row) {
	var f filler
	entry := state.Entry{Stamp: 1}
	for _, c := range commands {
		v := reflect.New(reflect.TypeOf(c).Elem())
		f.fill(t, v.Elem())
		entry.Commands = append(entry.Commands, v.Interface().(state.Command))
	}
	var out []state.Row
	for _, r := range rows {
		v := reflect.New(reflect.TypeOf(r).Elem())
		f.fill(t, v.Elem())
		out = append(out, v.Interface())
	}
	return entry, out
}

// everyMessage calls f with each message of m, m included.
func everyMessage(m protoreflect.Message, f func(protoreflect.Message)) {
	f(m)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				everyMessage(v.List().Get(i).Message(), f)
			}
		case fd.Message() != nil:
			everyMessage(v.Message(), f)
		}
		return true
	})
}

func TestAFieldThatIsNotKnownIsRefusedWhereverItStands(t *testing.T) {
	entry, all := filled(t)
	refused := func(m proto.Message, domain func() error) {
		t.Helper()
		if err := domain(); err != nil {
			t.Fatalf("before the field was added: %v", err)
		}
		everyMessage(m.ProtoReflect(), func(part protoreflect.Message) {
			part.SetUnknown(protoreflect.RawFields{0xfa, 0x7f, 0x01, 'x'}) // field 2047
			err := domain()
			if err == nil || !strings.Contains(err.Error(), "isn't known: this server is older") {
				t.Errorf("an unknown field in %s: %v", part.Descriptor().Name(), err)
			}
			part.SetUnknown(nil)
		})
	}
	x := EntryOf(entry)
	refused(x, func() error { _, err := x.Domain(); return err })
	for _, row := range all {
		r := RowOf(row)
		refused(r, func() error { _, err := r.Domain(); return err })
	}
}

func TestWhatNobodyCouldHaveMeantIsRefused(t *testing.T) {
	entry, all := filled(t)
	var job, alloc, node, spec, request *Row
	for _, row := range all {
		switch row.(type) {
		case *muster.Job:
			job = RowOf(row)
		case *muster.Allocation:
			alloc = RowOf(row)
		case *muster.Node:
			node = RowOf(row)
		case *state.SpecRow:
			spec = RowOf(row)
		case *state.RequestRow:
			request = RowOf(row)
		}
	}
	for _, c := range []struct {
		want    string
		row     *Row
		mistake func(*Row)
	}{
		{"Job.phase has a value that isn't known: 9", job, func(r *Row) { r.GetJob().Phase = 9 }},
		{"Job.spec has 3 bytes, not 16", job, func(r *Row) { r.GetJob().Spec = []byte("abc") }},
		{"Job.backoff is negative", job, func(r *Row) { r.GetJob().Backoff = -1 }},
		{"Job.submitted is before 1970", job, func(r *Row) { r.GetJob().Submitted = -1 }},
		{"Attempt.live is out of range: -1", job, func(r *Row) { r.GetJob().Attempts[1].Live = -1 }},
		{"Stop.mode has a value", job, func(r *Row) { r.GetJob().Stop.Mode = 99 }},
		{"Allocation.id is missing", alloc, func(r *Row) { r.GetAllocation().Id = nil }},
		{"Allocation.port is no port", alloc, func(r *Row) { r.GetAllocation().Port = 65536 }},
		{"Allocation.rank is out of range", alloc, func(r *Row) { r.GetAllocation().Rank = 1 << 40 }},
		{"Allocation.memory is out of range", alloc, func(r *Row) { r.GetAllocation().Memory = -1 }},
		{"Node.gpus has 65 elements", node, func(r *Row) { r.GetNode().Gpus = make([]*GPU, 65) }},
		{"Node.gpus is missing", node, func(r *Row) { r.GetNode().Gpus[0] = nil }},
		{"Node.free_memory is out of range", node, func(r *Row) { r.GetNode().FreeMemory = -1 << 63 }},
		{"JobSpec is missing", spec, func(r *Row) { r.GetSpec().Spec = nil }},
		{"Group.task is missing", spec, func(r *Row) { r.GetSpec().Spec.Groups[0].Task = nil }},
		{"Resources is missing", spec, func(r *Row) { r.GetSpec().Spec.Groups[0].Task.Resources = nil }},
		{"Group.retry is missing", spec, func(r *Row) { r.GetSpec().Spec.Groups[0].Retry = nil }},
		{"Group.count is out of range", spec, func(r *Row) { r.GetSpec().Spec.Groups[0].Count = -1 }},
		{"a kind of error isn't known", request, func(r *Row) { r.GetRequest().Result.Err.Kind = "new" }},
		{"Result is missing", request, func(r *Row) { r.GetRequest().Result = nil }},
		{"a row isn't known", job, func(r *Row) { r.Row = nil }},
		{"Queue is missing", job, func(r *Row) { r.Row = &Row_Queue{} }},
	} {
		r := proto.Clone(c.row).(*Row)
		c.mistake(r)
		if _, err := r.Domain(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
	for want, command := range map[string]*Command{
		"a command isn't known": {},
		"Submit is missing":     {Command: &Command_Submit{}},
		"Wake is missing":       {Command: &Command_Wake{}},
	} {
		x := EntryOf(entry)
		x.Commands = append(x.Commands, command)
		if _, err := x.Domain(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := DecodeEntry([]byte("\xff\xff")); err == nil {
		t.Error("bytes that are no entry were read")
	}
}

func TestTextThatIsNoUTF8IsMadeReadable(t *testing.T) {
	entry := state.Entry{Commands: []state.Command{
		&state.EndLeases{Reason: "node said \xff\xfe"},
		&state.UndrainNodes{Nodes: []string{"ok", "n\xff"}},
	}}
	got, err := DecodeEntry(EncodeEntry(entry))
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Commands[0].(*state.EndLeases).Reason; r != "node said \uFFFD" {
		t.Errorf("reason %q", r)
	}
	if n := got.Commands[1].(*state.UndrainNodes).Nodes; n[1] != "n\uFFFD" || n[0] != "ok" {
		t.Errorf("nodes %q", n)
	}
}
