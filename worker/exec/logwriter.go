package exec

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhpc/muster"
)

// logWriter appends a task's output to its segments. Both streams of a task write to it.
type logWriter struct {
	dir      string
	maxSize  int64 // of a segment
	maxFiles int

	mu     sync.Mutex
	file   *os.File
	starts []int64 // of the segments that are there
	size   int64   // of the newest
	buf    []byte
	lost   int64 // bytes that could not be written since the last record that was
	cause  error // why

	also *os.File // output goes there too; nil: nowhere
}

// openLog goes on with the log in dir, which must exist.
func openLog(dir string, limits LogLimits) (*logWriter, error) {
	w := &logWriter{dir: dir, maxSize: int64(limits.MaxSize), maxFiles: limits.MaxFiles, buf: make([]byte, recordHeader+maxRecord)}
	if w.maxSize <= 0 {
		w.maxSize = int64(100 * muster.MiB)
	}
	if w.maxFiles <= 0 {
		w.maxFiles = 5
	}
	w.maxSize = max(w.maxSize, minSegment)
	starts, err := segments(dir)
	if err != nil {
		return nil, err
	}
	if len(starts) > 0 {
		last := starts[len(starts)-1]
		if w.size, _, err = mend(segmentPath(dir, last)); err != nil {
			return nil, err
		}
		w.starts = starts
		w.file, err = os.OpenFile(segmentPath(dir, last), os.O_WRONLY|os.O_APPEND, 0o600)
		return w, err
	}
	return w, w.begin(0)
}

// begin makes the segment that starts at position start the newest one.
func (w *logWriter) begin(start int64) error {
	f, err := os.OpenFile(segmentPath(w.dir, start), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if w.file != nil {
		w.file.Close()
	}
	w.file, w.size = f, 0
	w.starts = append(w.starts, start)
	for len(w.starts) > w.maxFiles {
		_ = os.Remove(segmentPath(w.dir, w.starts[0])) // a reader that has it open reads on
		w.starts = w.starts[1:]
	}
	return nil
}

// write appends data as one record, or several when it is long. It never fails: what can't be written is counted, and
// said once writing works again, so that a full disk does not stop the task.
func (w *logWriter) write(kind recordKind, data []byte, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return
	}
	w.copy(data, now)
	for len(data) > 0 {
		part := data[:min(int64(len(data)), maxRecord, w.maxSize-recordHeader)]
		data = data[len(part):]
		if w.lost > 0 {
			note := fmt.Sprintf("muster: %d bytes of output were lost here: %v\n", w.lost, w.cause)
			if w.record(recordErr, []byte(note), now) != nil {
				w.lost += int64(len(part))
				continue
			}
			w.lost, w.cause = 0, nil
		}
		if err := w.record(kind, part, now); err != nil {
			w.lost += int64(len(part))
			w.cause = err
		}
	}
}

// openAlso opens the file of logs.path, which several ranks may share: each write goes to its end.
func openAlso(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
}

// copy writes output to the other file too. When that fails it is given up, and said so in the log: the task goes on.
func (w *logWriter) copy(data []byte, now time.Time) {
	if w.also == nil {
		return
	}
	_, err := w.also.Write(data)
	if err == nil {
		return
	}
	w.also.Close()
	w.also = nil
	_ = w.record(recordErr, fmt.Appendf(nil, "muster: logs.path is not written any more: %v\n", err), now)
}

func (w *logWriter) record(kind recordKind, data []byte, now time.Time) error {
	n := int64(recordHeader + len(data))
	if w.size > 0 && w.size+n > w.maxSize {
		if err := w.begin(w.starts[len(w.starts)-1] + w.size); err != nil {
			return err
		}
	}
	putHeader(w.buf, kind, len(data), now.UnixMilli())
	copy(w.buf[recordHeader:], data)
	if _, err := w.file.Write(w.buf[:n]); err != nil {
		// Half a record may be there: nothing may follow it.
		if cut := w.file.Truncate(w.size); cut != nil {
			w.file.Close()
			w.file = nil
			return fmt.Errorf("%w, and %v", err, cut)
		}
		return err
	}
	w.size += n
	return nil
}

// complete marks the end of the log: readers that follow it end there.
func (w *logWriter) complete(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return os.ErrClosed
	}
	err := w.record(recordEnd, nil, now)
	if w.also != nil {
		if closing := w.also.Close(); err == nil {
			err = closing
		}
	}
	if closing := w.file.Close(); err == nil {
		err = closing
	}
	w.file, w.buf = nil, nil
	return err
}

// CloseLog marks a log as complete whose supervisor died before it could: what a crash cut short is removed, and readers
// that follow it end. A log that is complete already stays as it is; without any output it is an empty one.
func CloseLog(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	starts, err := segments(dir)
	if err != nil {
		return err
	}
	if len(starts) > 0 {
		if _, ended, err := mend(segmentPath(dir, starts[len(starts)-1])); err != nil || ended {
			return err
		}
	}
	w, err := openLog(dir, LogLimits{})
	if err != nil {
		return err
	}
	return w.complete(time.Now())
}

// mend cuts a record that is not whole off the end of a segment. It gives the size then, and whether the log is complete.
func mend(path string) (size int64, ended bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, false, err
	}
	scan := scanner{file: f, end: info.Size()}
	for scan.next() {
		ended = scan.head.kind == recordEnd
	}
	if scan.err != nil {
		return 0, false, scan.err
	}
	if scan.at < info.Size() {
		return scan.at, ended, f.Truncate(scan.at)
	}
	return scan.at, ended, nil
}

const (
	tailWait = 100 * time.Millisecond // a line that isn't finished is written after so long
	restWait = 5 * time.Millisecond   // output that comes in drops is gathered for so long
	dropSize = 4 << 10
)

// copyStream writes everything that comes out of pipe to w, in whole lines where possible, until its writers are gone.
// Back-pressure is the pipe's: a task that prints without end waits for the disk and slows only itself.
func copyStream(w *logWriter, kind recordKind, pipe *os.File) {
	buf := make([]byte, maxRecord)
	kept := 0 // bytes in buf of a line that isn't finished
	var last time.Time
	for {
		n, err := pipe.Read(buf[kept:])
		now := time.Now()
		have := buf[:kept+n]
		cut := bytes.LastIndexByte(have, '\n') + 1
		if err != nil && os.IsTimeout(err) && kept > 0 {
			cut, err = len(have), nil
		}
		if err != nil || len(have) == len(buf) && cut == 0 {
			cut = len(have)
		}
		if cut > 0 {
			w.write(kind, have[:cut], now)
		}
		began := kept == 0 || cut > 0 // the unfinished line, if there is one
		kept = copy(buf, have[cut:])
		if err != nil {
			return // io.EOF, or closed by who gave up waiting for a process that does not die
		}
		switch {
		case kept == 0:
			_ = pipe.SetReadDeadline(time.Time{})
		case began:
			_ = pipe.SetReadDeadline(now.Add(tailWait))
		}
		if n > 0 && n < dropSize && now.Sub(last) < restWait {
			time.Sleep(restWait)
		}
		last = now
	}
}
