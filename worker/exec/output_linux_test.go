package exec

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

func TestMuchOutputStaysBoundedAndItsEndIsKept(t *testing.T) {
	n := newNode(t, false)
	task := n.task(`yes 0123456789012345678901234567890123456789 | head -c 50000000; echo; echo the end`)
	task.Logs = LogLimits{MaxSize: muster.MiB, MaxFiles: 3}
	n.run(task)
	if s := n.ended(task); s.Class != muster.ClassNone {
		t.Fatalf("ended as %+v", s)
	}
	entries, err := os.ReadDir(task.LogDir)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if len(entries) != 3 || size > int64(3*muster.MiB) {
		t.Errorf("%d files of %d bytes", len(entries), size)
	}
	text, lost, records := readAll(t, task.LogDir, LogFrom{})
	if lost == 0 || len(records) == 0 || text[len(text)-len("the end\n"):] != "the end\n" {
		t.Errorf("%d lost, %d records, ends with %.40q", lost, len(records), text[max(0, len(text)-40):])
	}
	if last, _, _ := readAll(t, task.LogDir, LogFrom{LastLines: 1}); last != "the end\n" {
		t.Errorf("the last line is %q", last)
	}
	data := int64(0)
	for _, record := range records {
		data += int64(len(record.Data))
	}
	// What is there and what was lost is what was printed, but for the headers of the lost records.
	if all := lost + data; all < 50_000_000 || all > 51_000_000 {
		t.Errorf("%d bytes are there and %d are lost", data, lost)
	}
}

func TestNothingPrintedIsLost(t *testing.T) {
	everywhere(t, func(t *testing.T, n *node) {
		task := n.run(n.task(`i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done; printf 'no newline'`))
		r, err := OpenLog(task.LogDir, LogFrom{}, true)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		size := 0
		for {
			record, err := r.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			size += len(record.Data)
		}
		if want := 10*7 + 90*8 + 900*9 + 9000*10 + 10000*11 + 10; size != want {
			t.Errorf("followed %d bytes of %d", size, want)
		}
		n.ended(task)
	})
}

func TestALineIsSeenSoon(t *testing.T) {
	n := newNode(t, false)
	task := n.run(n.task(`echo go; read _ </dev/null; printf half; sleep 1000`))
	began := time.Now()
	n.says(task, "half")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}
