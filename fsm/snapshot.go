package fsm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// A snapshot file is
//
//	the 8 bytes of magic
//	a part: the SnapshotHeader
//	a part for each Row, table by table
//	an empty part (a Row is never empty)
//	the CRC-32C of all bytes before, 4 bytes, big endian
//
// where a part is its length as an unsigned varint, then its bytes: a protobuf message.
const (
	magic = "MUSTERS\n"

	// format 1: as above. Released files of every format load for ever.
	format = 1

	// maxPart bounds a part: the largest row is a job with its attempts.
	maxPart = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// WriteSnapshot writes a snapshot file.
func WriteSnapshot(to io.Writer, s *state.Snapshot) error {
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(to, sum), 256<<10)
	header := wire.Encode(&wire.SnapshotHeader{Format: format, Index: uint64(s.Version().Index), Digest: s.Digest()})
	_, _ = w.WriteString(magic) // a bufio.Writer keeps its first error until Flush
	writePart(w, header)
	for row := range s.Rows() {
		writePart(w, wire.EncodeRow(row))
	}
	writePart(w, nil)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := to.Write(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

func writePart(w *bufio.Writer, part []byte) {
	var length [binary.MaxVarintLen64]byte
	_, _ = w.Write(binary.AppendUvarint(length[:0], uint64(len(part))))
	_, _ = w.Write(part)
}

// ReadSnapshot builds a state from a snapshot file. It verifies the checksum, that the rows fit together (state.Restore checks the
// invariants), and that they have the digest that they were written with; an error names what is damaged.
func ReadSnapshot(from io.Reader) (*state.State, error) {
	r := &reader{from: bufio.NewReaderSize(from, 256<<10), sum: crc32.New(castagnoli)}
	header, err := r.header()
	if err != nil {
		return nil, fmt.Errorf("the snapshot's header is damaged: %w", err)
	}
	if header.Format != format {
		return nil, fmt.Errorf("the snapshot has format %d, and this server knows only %d: it is older than what wrote it", header.Format, format)
	}
	fresh, err := state.Restore(muster.Index(header.Index), r.rows())
	if damage := r.finish(); damage != nil { // says more than what does not fit because of it
		return nil, damage
	}
	if err != nil {
		return nil, fmt.Errorf("the snapshot's rows don't fit together: %w", err)
	}
	if got := fresh.Snapshot().Digest(); got != header.Digest {
		return nil, fmt.Errorf("the snapshot's digest is %016x, and its rows have %016x", header.Digest, got)
	}
	return fresh, nil
}

// reader reads parts and sums what it reads.
type reader struct {
	from     *bufio.Reader
	sum      hash.Hash32
	offset   int64
	buffer   bytes.Buffer
	scratch  [1]byte
	number   int // of rows read
	complete bool
	err      error
}

func (r *reader) header() (*wire.SnapshotHeader, error) {
	var begin [len(magic)]byte
	if err := r.full(begin[:]); err != nil {
		return nil, err
	}
	if string(begin[:]) != magic {
		return nil, errors.New("the file is no snapshot of muster's")
	}
	part, err := r.part()
	if err != nil {
		return nil, err
	}
	var header wire.SnapshotHeader
	if err := proto.Unmarshal(part, &header); err != nil {
		return nil, err
	}
	if len(header.ProtoReflect().GetUnknown()) > 0 && header.Format == format {
		return nil, errors.New("it has a field that isn't known")
	}
	return &header, nil
}

// rows yields each row; the last thing it yields may be an error, which it keeps too.
func (r *reader) rows() iter.Seq2[state.Row, error] {
	return func(yield func(state.Row, error) bool) {
		for {
			at := r.offset
			part, err := r.row()
			if err != nil {
				yield(nil, err)
				return
			}
			if part == nil {
				return
			}
			row, err := wire.DecodeRow(part)
			if err != nil {
				r.err = r.damaged(at, err)
				yield(nil, r.err)
				return
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// finish reads what was left, when the rows were not wanted any more, and says what is damaged.
func (r *reader) finish() error {
	for r.err == nil && !r.complete {
		_, _ = r.row() // keeps its error
	}
	return r.err
}

// row reads the next row's bytes, or nil at the end, once the checksum was verified.
func (r *reader) row() ([]byte, error) {
	at := r.offset
	r.number++
	part, err := r.part()
	switch {
	case err != nil:
		r.err = r.damaged(at, err)
	case len(part) == 0:
		part, r.err = nil, r.trailer()
	}
	return part, r.err
}

func (r *reader) damaged(at int64, err error) error {
	return fmt.Errorf("row %d of the snapshot, at byte %d, is damaged: %w", r.number, at, err)
}

func (r *reader) trailer() error {
	want := r.sum.Sum32()
	var stored [4]byte
	if err := r.full(stored[:]); err != nil {
		return fmt.Errorf("the snapshot's checksum is damaged: %w", err)
	}
	if got := binary.BigEndian.Uint32(stored[:]); got != want {
		return fmt.Errorf("the snapshot's checksum is %08x, and its %d bytes have %08x: the file is damaged", got, r.offset-4, want)
	}
	if _, err := r.from.ReadByte(); err != io.EOF {
		return fmt.Errorf("the snapshot goes on after its end, at byte %d", r.offset)
	}
	r.complete = true
	return nil
}

// part reads a part; its bytes are good until the next. Memory grows with what is there, not with what a damaged length says.
func (r *reader) part() ([]byte, error) {
	length, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, ended(err)
	}
	if length > maxPart {
		return nil, fmt.Errorf("its length is %d bytes", length)
	}
	r.buffer.Reset()
	if _, err := io.CopyN(&r.buffer, r.from, int64(length)); err != nil {
		return nil, ended(err)
	}
	r.offset += int64(length)
	_, _ = r.sum.Write(r.buffer.Bytes()) // a hash takes everything
	return r.buffer.Bytes(), nil
}

// ReadByte serves binary.ReadUvarint.
func (r *reader) ReadByte() (byte, error) {
	b, err := r.from.ReadByte()
	if err == nil {
		r.offset++
		r.scratch[0] = b
		_, _ = r.sum.Write(r.scratch[:])
	}
	return b, err
}

func (r *reader) full(into []byte) error {
	if _, err := io.ReadFull(r.from, into); err != nil {
		return ended(err)
	}
	r.offset += int64(len(into))
	_, _ = r.sum.Write(into)
	return nil
}

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends in the middle")
	}
	return err
}
