package exec

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A task's output is one stream of records, cut into segments: files named by the position, in that stream, of their first
// byte. A position counts headers too; it stays valid when rotation removes segments before it. A record is a header of 16
// bytes and its data:
//
//	0     kind: 1 standard output, 2 standard error, 3 the log is complete (no data)
//	1-3   zero
//	4-7   length of the data, big endian
//	8-15  when it was written, Unix milliseconds, big endian
//
// Segments are written by appending only. A record that a crash cut short is the last of the log: readers stop before it.
const (
	recordHeader = 16
	maxRecord    = 64 << 10 // data of one record
	minSegment   = 4 << 10
	segmentExt   = ".log"
)

type recordKind byte

const (
	recordOut recordKind = 1
	recordErr recordKind = 2
	recordEnd recordKind = 3
)

func putHeader(b []byte, kind recordKind, length int, millis int64) {
	b[0], b[1], b[2], b[3] = byte(kind), 0, 0, 0
	binary.BigEndian.PutUint32(b[4:], uint32(length))
	binary.BigEndian.PutUint64(b[8:], uint64(millis))
}

type recordHead struct {
	kind   recordKind
	length int
	millis int64
}

// parseHeader reads a header; false: the bytes are not one.
func parseHeader(b []byte) (recordHead, bool) {
	h := recordHead{
		kind: recordKind(b[0]), length: int(binary.BigEndian.Uint32(b[4:])), millis: int64(binary.BigEndian.Uint64(b[8:])),
	}
	ok := h.kind >= recordOut && h.kind <= recordEnd && b[1] == 0 && b[2] == 0 && b[3] == 0 && h.length <= maxRecord &&
		(h.kind != recordEnd || h.length == 0)
	return h, ok
}

func segmentPath(dir string, start int64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", start, segmentExt))
}

// segments lists the starts of the segments in dir, in order.
func segments(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var starts []int64
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), segmentExt)
		if !ok || len(name) != 20 {
			continue
		}
		if start, err := strconv.ParseInt(name, 10, 64); err == nil {
			starts = append(starts, start)
		}
	}
	slices.Sort(starts)
	return starts, nil
}
