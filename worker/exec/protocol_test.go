package exec

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhpc/muster"
)

// everyFrame uses every field of the protocol.
func everyFrame() []frame {
	id := muster.AllocID{Epoch: 3, Counter: 42}
	return []frame{
		{Hello: &hello{Protocol: 1, Pid: 77, Start: 991, Boot: "b00t"}},
		{ID: 1, Method: methodPrepare, Task: &Task{
			Alloc: id, Job: 1042, Attempt: 2, Argv: []string{"a", "b"}, Script: "#!/bin/sh\n", Env: []string{"A=1"}, Dir: "/d",
			TaskDir: "/t", LogDir: "/l", Logs: LogLimits{MaxSize: 4096, MaxFiles: 3}, StopFile: "/s", MilliCores: 1500,
			Memory: muster.GiB, TimeLimit: time.Hour,
			Checkpoint: muster.Checkpoint{Grace: time.Minute, Signal: "SIGUSR1", To: muster.ToAll},
			KillSignal: "SIGINT", KillTimeout: 30 * time.Second, Success: []int{0, 3}, Lease: time.Minute, LeaseEnd: 123456789,
		}},
		{ID: 2, Method: methodStop, Alloc: &id, Stop: &muster.Stop{Mode: muster.StopTerm, Class: muster.ClassDrain, Reason: "r", At: 5}},
		{ID: 3, Method: methodExtend, Leases: []leaseEnd{{Alloc: id, End: 99}}},
		{ID: 3, Allocs: []muster.AllocID{id}, Tasks: []Status{everyStatus()}, Failure: &failure{
			Kind: muster.KindConflict, Message: "m", Hint: "h", Prepare: true,
		}},
		{Event: func() *Status { s := everyStatus(); return &s }()},
		{ID: 4, Method: methodPrepare, Task: &Task{Alloc: id, LogPath: "/o", Memory: muster.GiB, MemoryUnset: true,
			Checkpoint: muster.Checkpoint{Every: time.Minute}}},
	}
}

func everyStatus() Status {
	at := time.UnixMilli(1_800_000_000_123).UTC()
	return Status{
		Alloc: muster.AllocID{Epoch: 3, Counter: 42}, Phase: muster.AllocStopping, Pid: 7, PidStart: 8, Running: at,
		Ended: at.Add(time.Hour), Class: muster.ClassOOM, ExitCode: 137, Signal: 9, Message: "m", Peak: muster.MiB,
	}
}

// What the first release wrote is read for ever. The file is never rewritten; a release that adds fields adds lines.
func TestFramesOfEveryReleaseAreRead(t *testing.T) {
	file, err := os.ReadFile("testdata/protocol-1.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(file))
	for i, want := range everyFrame() {
		if !lines.Scan() {
			t.Fatalf("line %d is missing", i+1)
		}
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		var got frame
		if err := decoder.Decode(&got); err != nil {
			t.Errorf("line %d: %v", i+1, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("line %d (-want +got):\n%s", i+1, diff)
		}
	}
}

func TestTheFramesOfTheTestUseEveryField(t *testing.T) {
	used := map[string]bool{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() {
					name := v.Type().String() + "." + f.Name
					used[name] = used[name] || !v.Field(i).IsZero()
					walk(v.Field(i))
				}
			}
		}
	}
	for _, f := range everyFrame() {
		walk(reflect.ValueOf(f))
	}
	for name, ok := range used {
		if !ok {
			t.Errorf("%s is not in any frame", name)
		}
	}
}

func TestFramesTravelWhole(t *testing.T) {
	var wire bytes.Buffer
	for _, f := range everyFrame() {
		if err := writeFrame(&wire, &f); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range everyFrame() {
		got, err := readFrame(&wire)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("frame %d (-want +got):\n%s", i, diff)
		}
	}
	for name, bad := range map[string][]byte{
		"too long": {0xff, 0xff, 0xff, 0xff}, "not JSON": {0, 0, 0, 2, 'x', 'y'}, "cut": {0, 0, 0, 9, '{'}, "cut length": {0, 0},
	} {
		if _, err := readFrame(bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
