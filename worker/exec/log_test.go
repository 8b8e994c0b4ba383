package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func newLog(t *testing.T, limits LogLimits) *logWriter {
	t.Helper()
	w, err := openLog(t.TempDir(), limits)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var noon = time.UnixMilli(1_800_000_000_000)

// readAll reads until there is no more.
func readAll(t *testing.T, dir string, from LogFrom) (text string, lost int64, records []LogRecord) {
	t.Helper()
	r, err := OpenLog(dir, from, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		record, err := r.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return text, lost, records
		}
		if err != nil {
			t.Fatal(err)
		}
		text += string(record.Data)
		lost += record.Lost
		records = append(records, record)
	}
}

func TestALogKeepsStreamTimeAndBytes(t *testing.T) {
	w := newLog(t, LogLimits{})
	w.write(recordOut, []byte("one\n"), noon)
	w.write(recordErr, []byte("two\n"), noon.Add(time.Second))
	if err := w.complete(noon); err != nil {
		t.Fatal(err)
	}
	text, lost, records := readAll(t, w.dir, LogFrom{})
	if text != "one\ntwo\n" || lost != 0 || len(records) != 2 || records[0].Stderr || !records[1].Stderr ||
		!records[1].Time.Equal(noon.Add(time.Second)) {
		t.Errorf("read %q, %+v", text, records)
	}
}

func TestReadingGoesOnAtAPosition(t *testing.T) {
	w := newLog(t, LogLimits{MaxSize: 4 * muster.KiB, MaxFiles: 100})
	want := ""
	for i := range 500 {
		line := fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", i%97))
		want += line
		w.write(recordOut, []byte(line), noon)
	}
	all, _, records := readAll(t, w.dir, LogFrom{})
	if all != want {
		t.Fatalf("read %d bytes of %d", len(all), len(want))
	}
	at := 0
	for i, record := range records {
		at += len(record.Data)
		if i%50 == 7 {
			if rest, lost, _ := readAll(t, w.dir, LogFrom{Offset: record.Next}); rest != want[at:] || lost != 0 {
				t.Errorf("from %d: %d bytes, %d lost, want %d", record.Next, len(rest), lost, len(want)-at)
			}
		}
	}
	r, err := OpenLog(w.dir, LogFrom{Offset: records[3].Next + 5}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(context.Background()); muster.KindOf(err) != muster.KindInvalid {
		t.Errorf("a position inside a record gave %v", err)
	}
}

func TestRotationBoundsALogAndSaysWhatItLost(t *testing.T) {
	w := newLog(t, LogLimits{MaxSize: 4 * muster.KiB, MaxFiles: 3})
	line := strings.Repeat("y", 99) + "\n"
	total := int64(0)
	for range 1000 {
		w.write(recordOut, []byte(line), noon)
		total += recordHeader + 100
	}
	starts, err := segments(w.dir)
	if err != nil || len(starts) != 3 {
		t.Fatalf("segments %v, %v", starts, err)
	}
	for _, start := range starts {
		if info, err := os.Stat(segmentPath(w.dir, start)); err != nil || info.Size() > 4096 {
			t.Errorf("segment %d: %v, %v", start, info.Size(), err)
		}
	}
	text, lost, records := readAll(t, w.dir, LogFrom{})
	last := records[len(records)-1]
	if lost != starts[0] || records[0].Lost != lost || last.Next != total || int64(len(records))*116+lost != total || len(text) != len(records)*100 {
		t.Errorf("%d records, %d lost, the end at %d of %d", len(records), lost, last.Next, total)
	}
}

func TestTheLastLinesAndSince(t *testing.T) {
	w := newLog(t, LogLimits{MaxSize: 4 * muster.KiB, MaxFiles: 100})
	var lines []string
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("line %d %s\n", i, strings.Repeat("z", 60)))
	}
	for i := 0; i < len(lines); i += 3 { // three lines a record
		w.write(recordOut, []byte(lines[i]+lines[i+1]+lines[i+2]), noon.Add(time.Duration(i)*time.Second))
	}
	check := func(want string, from LogFrom) {
		t.Helper()
		if got, _, _ := readAll(t, w.dir, from); got != want {
			t.Errorf("%+v: %d bytes, want %d; %.60q, want %.60q", from, len(got), len(want), got, want)
		}
	}
	tail := func(n int) string { return strings.Join(lines[len(lines)-n:], "") }
	for _, n := range []int{1, 2, 3, 4, 5, 99, 150, 300} {
		check(tail(n), LogFrom{LastLines: int64(n)})
	}
	check(tail(300), LogFrom{LastLines: 5000})
	check(tail(30), LogFrom{Since: noon.Add(270 * time.Second)})
	check(tail(27), LogFrom{Since: noon.Add(271 * time.Second)})
	check(tail(300), LogFrom{Since: noon.Add(-time.Hour)})
	check("", LogFrom{Since: noon.Add(time.Hour)})
	w.write(recordOut, []byte("no newline"), noon)
	check(tail(1)+"no newline", LogFrom{LastLines: 2})
	check("no newline", LogFrom{LastLines: 1})
}

func TestAFollowerSeesWhatIsWrittenAndTheEnd(t *testing.T) {
	w := newLog(t, LogLimits{MaxSize: 4 * muster.KiB, MaxFiles: 100})
	r, err := OpenLog(w.dir, LogFrom{}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := ""
	for i := range 400 {
		want += fmt.Sprintf("line %d\n", i)
	}
	go func() {
		for line := range strings.Lines(want) {
			w.write(recordOut, []byte(line), noon)
		}
		_ = w.complete(noon)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	got := ""
	for {
		record, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if record.Lost != 0 {
			t.Errorf("lost %d", record.Lost)
		}
		got += string(record.Data)
	}
	if got != want || !r.Complete() {
		t.Errorf("followed %d bytes of %d; complete: %v", len(got), len(want), r.Complete())
	}
}

func TestAFollowerMayComeBeforeTheLogAndLeave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	r, err := OpenLog(dir, LogFrom{LastLines: 10}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it waits on: %v", err)
	}
	if err := CloseLog(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(context.Background()); !errors.Is(err, io.EOF) || !r.Complete() {
		t.Errorf("a log without output does not end: %v", err)
	}
	if _, err := OpenLog(filepath.Join(dir, "nowhere"), LogFrom{}, false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log that is not there gave %v", err)
	}
}

// A crash may cut the log anywhere: whatever is whole is read, and the log can be completed and read to its end.
func TestALogThatACrashCutIsReadable(t *testing.T) {
	w := newLog(t, LogLimits{})
	w.write(recordOut, []byte("first\n"), noon)
	w.write(recordOut, []byte("second\n"), noon)
	whole, err := os.ReadFile(segmentPath(w.dir, 0))
	if err != nil {
		t.Fatal(err)
	}
	first := recordHeader + len("first\n")
	for cut := range len(whole) + 1 {
		want := ""
		if cut >= first {
			want = "first\n"
		}
		if cut == len(whole) {
			want += "second\n"
		}
		for _, zeros := range []int{0, 40} { // a power loss may leave zeros where data was to be
			dir := t.TempDir()
			content := append(bytes.Clone(whole[:cut]), make([]byte, zeros)...)
			if zeros > 0 && cut != first && cut != 0 && cut != len(whole) {
				continue
			}
			if err := os.WriteFile(segmentPath(dir, 0), content, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, _, _ := readAll(t, dir, LogFrom{}); got != want {
				t.Errorf("cut at %d: %q, want %q", cut, got, want)
			}
			for range 2 { // the second time it is complete already
				if err := CloseLog(dir); err != nil {
					t.Fatal(err)
				}
			}
			r, err := OpenLog(dir, LogFrom{}, true)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for {
				record, err := r.Next(context.Background())
				if err != nil {
					break
				}
				got += string(record.Data)
			}
			if got != want || !r.Complete() {
				t.Errorf("cut at %d, completed: %q, want %q", cut, got, want)
			}
			r.Close()
		}
	}
}

func TestAPositionBehindTheEndIsTakenBack(t *testing.T) {
	w := newLog(t, LogLimits{})
	w.write(recordOut, []byte("one\n"), noon)
	r, err := OpenLog(w.dir, LogFrom{Offset: 1000}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := w.complete(noon); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(context.Background()); !errors.Is(err, io.EOF) || !r.Complete() {
		t.Errorf("it does not end: %v", err)
	}
}

func TestAStreamIsCutIntoWholeLines(t *testing.T) {
	w := newLog(t, LogLimits{})
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); copyStream(w, recordOut, read) }()
	r, err := OpenLog(w.dir, LogFrom{}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	next := func(want string) {
		t.Helper()
		if record, err := r.Next(ctx); err != nil || string(record.Data) != want {
			t.Errorf("read %q, %v, want %q", record.Data, err, want)
		}
	}
	send := func(s string) {
		t.Helper()
		if _, err := write.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	send("a\nb\nlater")
	next("a\nb\n")
	next("later") // a progress bar is seen though its line is not finished
	send(strings.Repeat("x", maxRecord) + "y\n")
	next(strings.Repeat("x", maxRecord))
	next("y\n")
	send("rest")
	write.Close()
	next("rest")
	<-done
}

func TestOutputGoesToTheUsersFileToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "out")
	w := newLog(t, LogLimits{})
	var err error
	if w.also, err = openAlso(path); err != nil {
		t.Fatal(err)
	}
	w.write(recordOut, []byte("one\n"), time.UnixMilli(1))
	other, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0) // another rank's
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.WriteString("another\n"); err != nil {
		t.Fatal(err)
	}
	other.Close()
	w.write(recordErr, []byte("two\n"), time.UnixMilli(2))
	w.also.Close() // its disk went away
	w.write(recordOut, []byte("three\n"), time.UnixMilli(3))
	w.write(recordOut, []byte("four\n"), time.UnixMilli(4))
	if err := w.complete(time.UnixMilli(5)); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "one\nanother\ntwo\n" {
		t.Errorf("%v: %q", err, text)
	}
}
