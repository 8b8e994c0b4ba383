package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"time"

	"github.com/musterhpc/muster"
)

// LogFrom says where reading begins: at a position that LogRecord.Next gave; or, when LastLines is set, so many lines before
// the end; or, when Since is set, at the first record written then or later.
type LogFrom struct {
	Offset    int64
	LastLines int64
	Since     time.Time
}

// LogRecord is a piece of a task's output.
type LogRecord struct {
	Stderr bool
	Data   []byte
	Time   time.Time // when it was written
	Next   int64     // position after it
	Lost   int64     // bytes before it that rotation has removed, since the last record or the position asked for
}

// LogReader reads the log of an allocation, while it is written or later. It is used by one goroutine.
type LogReader struct {
	dir    string
	follow bool
	from   LogFrom
	placed bool // position is set, from has been looked at

	position int64 // of the next record
	skip     int   // bytes of its data that are before the first line asked for
	lost     int64
	complete bool

	file  *os.File
	start int64 // of file's segment
}

// OpenLog begins to read the log in dir. With follow, Next waits for more until the log is complete; dir may be made later.
func OpenLog(dir string, from LogFrom, follow bool) (*LogReader, error) {
	if from.Offset < 0 || from.LastLines < 0 {
		return nil, muster.Errorf(muster.KindUsage, "a position or number of lines in a log is not negative")
	}
	if !follow {
		if _, err := os.Stat(dir); err != nil {
			return nil, err
		}
	}
	return &LogReader{dir: dir, follow: follow, from: from}, nil
}

// Close ends reading.
func (r *LogReader) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// Position is where the next record begins.
func (r *LogReader) Position() int64 { return r.position }

// Complete says, after io.EOF, whether the log is complete: no more will ever come.
func (r *LogReader) Complete() bool { return r.complete }

const (
	firstPause = 5 * time.Millisecond
	longPause  = 50 * time.Millisecond
)

// Next gives the next record. io.EOF: the log is complete, or, without follow, there is no more now.
func (r *LogReader) Next(ctx context.Context) (LogRecord, error) {
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		record, ok, err := r.try()
		if err != nil || ok {
			return record, err
		}
		if r.complete || !r.follow {
			return LogRecord{}, io.EOF
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return LogRecord{}, ctx.Err()
		case <-timer.C:
		}
	}
}

// try gives the next record if it is there.
func (r *LogReader) try() (LogRecord, bool, error) {
	if !r.placed {
		ok, err := r.place()
		if err != nil || !ok {
			return LogRecord{}, false, err
		}
		r.placed = true
	}
	for !r.complete {
		if r.file == nil {
			if ok, err := r.open(); err != nil || !ok {
				return LogRecord{}, false, err
			}
		}
		record, ok, err := r.readRecord()
		if ok && len(record.Data) == 0 && err == nil {
			r.lost = record.Lost
			continue // all of it is before the first line asked for
		}
		if err != nil || ok {
			return record, ok, err
		}
		if r.complete {
			break
		}
		if ok, err := r.onward(); err != nil || !ok {
			return LogRecord{}, false, err
		}
	}
	return LogRecord{}, false, nil
}

// readRecord reads at the position in the open segment; false: no whole record is there.
func (r *LogReader) readRecord() (LogRecord, bool, error) {
	var header [recordHeader]byte
	at := r.position - r.start
	if n, err := r.file.ReadAt(header[:], at); n < recordHeader {
		return LogRecord{}, false, notEOF(err)
	}
	h, ok := parseHeader(header[:])
	if !ok {
		if header == [recordHeader]byte{} {
			return LogRecord{}, false, nil // power was lost: the file grew, its content was not written
		}
		return LogRecord{}, false, muster.Errorf(muster.KindInvalid, "position %d is not at the beginning of a record of the log",
			r.position).WithHint("Go on at a position that was given with a record")
	}
	if h.kind == recordEnd {
		r.complete = true
		r.position += recordHeader
		return LogRecord{}, false, nil
	}
	data := make([]byte, h.length)
	if n, err := r.file.ReadAt(data, at+recordHeader); n < h.length {
		return LogRecord{}, false, notEOF(err)
	}
	r.position += int64(recordHeader + h.length)
	record := LogRecord{
		Stderr: h.kind == recordErr, Data: data[min(r.skip, len(data)):], Time: time.UnixMilli(h.millis), Next: r.position, Lost: r.lost,
	}
	r.skip, r.lost = 0, 0
	return record, true, nil
}

// open opens the segment that holds the position. One that rotation has removed: the oldest that is left, and what was lost
// is counted.
func (r *LogReader) open() (bool, error) {
	starts, err := segments(r.dir)
	if err != nil || len(starts) == 0 {
		if errors.Is(err, fs.ErrNotExist) && r.follow {
			err = nil
		}
		return false, err
	}
	i := sort.Search(len(starts), func(i int) bool { return starts[i] > r.position }) - 1
	if i < 0 {
		i = 0
		r.lost += starts[0] - r.position
		r.position, r.skip = starts[0], 0
	}
	f, err := os.Open(segmentPath(r.dir, starts[i]))
	if errors.Is(err, fs.ErrNotExist) {
		return r.open() // rotation was faster; what it keeps is newer each time
	}
	if err != nil {
		return false, err
	}
	r.file, r.start = f, starts[i]
	return true, nil
}

// onward leaves a segment that has ended for the next: one that starts exactly here, or, when rotation has removed that, a
// later one. False: the open segment is the newest.
func (r *LogReader) onward() (bool, error) {
	starts, err := segments(r.dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	i := sort.Search(len(starts), func(i int) bool { return starts[i] > r.start })
	if i == len(starts) {
		return r.backToEnd()
	}
	if starts[i] > r.position {
		// More may have been written here between our read and the making of that segment.
		info, err := r.file.Stat()
		if err != nil {
			return false, err
		}
		if r.start+info.Size() > r.position {
			if whole, err := r.wholeAt(info.Size()); err != nil || whole {
				return whole, err
			}
		}
		r.lost += starts[i] - r.position
		r.position, r.skip = starts[i], 0
	}
	if err := r.Close(); err != nil {
		return false, err
	}
	return r.open()
}

// backToEnd puts a position behind the end of the log, which a power loss may have moved back, at the end.
func (r *LogReader) backToEnd() (bool, error) {
	info, err := r.file.Stat()
	if err != nil || r.start+info.Size() >= r.position {
		return false, err
	}
	scan := scanner{file: r.file, end: info.Size()}
	ended := int64(-1)
	for at := scan.at; scan.next(); at = scan.at {
		if scan.head.kind == recordEnd {
			ended = at
		}
	}
	r.position = r.start + scan.at
	if ended >= 0 {
		r.position = r.start + ended
	}
	return ended >= 0, scan.err
}

// wholeAt says whether a whole record lies between the position and the end of the open segment.
func (r *LogReader) wholeAt(size int64) (bool, error) {
	scan := scanner{file: r.file, at: r.position - r.start, end: size}
	return scan.next(), scan.err
}

// place finds the position where reading begins; false: there is no log yet.
func (r *LogReader) place() (bool, error) {
	if r.from.LastLines == 0 && r.from.Since.IsZero() {
		r.position = r.from.Offset
		return true, nil
	}
	starts, err := segments(r.dir)
	if err != nil || len(starts) == 0 {
		if errors.Is(err, fs.ErrNotExist) && r.follow {
			err = nil
		}
		return false, err
	}
	if r.from.LastLines > 0 {
		return true, r.placeLines(starts, r.from.LastLines)
	}
	r.position = starts[0]
	for i := len(starts) - 1; i >= 0; i-- {
		first, found, err := r.firstSince(starts[i])
		if err != nil {
			return false, err
		}
		if found >= 0 {
			r.position = starts[i] + found
		} else if i == len(starts)-1 {
			r.position = starts[i] - found - 1 // after all there is
		}
		if first < r.from.Since.UnixMilli() {
			break
		}
	}
	return true, nil
}

// firstSince gives the time of a segment's first record, and the offset in it of the first record not older than Since; none:
// -1 - the offset of its end.
func (r *LogReader) firstSince(start int64) (first, found int64, err error) {
	f, scan, err := scanSegment(r.dir, start)
	if err != nil {
		return 0, -1, err
	}
	defer f.Close()
	for n := 0; ; n++ {
		at := scan.at
		if !scan.next() {
			return first, -1 - at, scan.err
		}
		if n == 0 {
			first = scan.head.millis
		}
		if scan.head.millis >= r.from.Since.UnixMilli() {
			return first, at, nil
		}
	}
}

// placeLines sets the position so that the last n lines of what is there follow. A line that isn't finished counts.
func (r *LogReader) placeLines(starts []int64, n int64) error {
	first := true
	for i := len(starts) - 1; i >= 0; i-- {
		f, scan, err := scanSegment(r.dir, starts[i])
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		var at []int64
		var heads []recordHead
		for offset := scan.at; scan.next(); offset = scan.at {
			at, heads = append(at, offset), append(heads, scan.head)
		}
		err = scan.err
		for k := len(at) - 1; k >= 0 && err == nil; k-- {
			data := make([]byte, heads[k].length)
			if _, err = f.ReadAt(data, at[k]+recordHeader); err != nil {
				break
			}
			end := len(data)
			for end > 0 {
				if first { // the newline that ends the last line begins none
					first = false
					if data[end-1] == '\n' {
						end--
					}
				}
				j := bytes.LastIndexByte(data[:end], '\n')
				if j < 0 {
					break
				}
				if n--; n == 0 {
					r.position, r.skip = starts[i]+at[k], j+1
					return f.Close()
				}
				end = j
			}
		}
		if closing := f.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return fmt.Errorf("log: %w", err)
		}
		r.position, r.skip = starts[i], 0
	}
	return nil
}

func scanSegment(dir string, start int64) (*os.File, *scanner, error) {
	f, err := os.Open(segmentPath(dir, start))
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, &scanner{file: f, end: info.Size()}, nil
}

// scanner walks over the whole records of a segment without reading their data.
type scanner struct {
	file *os.File
	at   int64 // of the next record
	end  int64
	head recordHead
	err  error
}

func (s *scanner) next() bool {
	var header [recordHeader]byte
	if s.err != nil || s.end-s.at < recordHeader {
		return false
	}
	if _, err := s.file.ReadAt(header[:], s.at); err != nil {
		s.err = notEOF(err)
		return false
	}
	h, ok := parseHeader(header[:])
	if !ok || s.end-s.at < int64(recordHeader+h.length) {
		return false
	}
	s.head = h
	s.at += int64(recordHeader + h.length)
	return true
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
