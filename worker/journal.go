package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/step"
	"google.golang.org/protobuf/proto"
)

// A journal is a file of frames, each one fsync's worth of records:
//
//	length of the payload, CRC-32C of those four bytes, CRC-32C of the payload (each 4 bytes, little endian), payload
//
// The payload is a wire.JournalBatch. A frame that was cut off by a crash is the last one and nobody was told that it is
// there, so it is dropped. A bad frame with a whole one after it is damage: the file is refused.
const (
	journalMagic  = "muster journal 1\n"
	frameHeader   = 12
	frameMax      = 16 << 20
	journalSlack  = 1 << 20 // a journal is rewritten when it is so much larger than what it says
	journalPerRow = 256     // bytes a record takes at most, roughly
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journal writes history. Calls of write that come while an fsync runs share the next one.
type journal struct {
	path string

	mu      sync.Mutex
	waiting []*journalWrite
	busy    bool // one of the callers is writing, or was told to
	failed  error

	// Of the writer alone.
	file    journalFile
	size    int64
	history step.History
}

// journalFile is the part of os.File that a journal needs; tests break it.
type journalFile interface {
	io.Writer
	Sync() error
	Close() error
}

type journalWrite struct {
	records []*wire.JournalRecord
	done    chan error
	lead    chan struct{} // the caller is to write, for all that wait
}

// openJournal reads the journal at path, or begins one, and gives what it says.
func openJournal(path string) (*journal, step.History, error) {
	h, good, err := readJournal(path)
	if err != nil {
		return nil, step.History{}, err
	}
	j := &journal{path: path, history: h}
	if good == 0 {
		err = j.rewrite()
	} else {
		err = j.reopen(good)
	}
	if err != nil {
		return nil, step.History{}, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, step.History{Seen: h.Seen, Intents: maps.Clone(h.Intents), Ended: maps.Clone(h.Ended)}, nil
}

// readJournal gives what the file says and how many bytes of it are good; 0 when it has to be begun.
func readJournal(path string) (step.History, int64, error) {
	h := step.NewHistory()
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return h, 0, nil
	}
	if err != nil {
		return h, 0, fmt.Errorf("journal: %w", err)
	}
	if len(data) < len(journalMagic) && journalMagic[:len(data)] == string(data) {
		return h, 0, nil // it died while it began
	}
	if len(data) < len(journalMagic) || string(data[:len(journalMagic)]) != journalMagic {
		return h, 0, fmt.Errorf("%s is not a journal that this version of muster can read", path)
	}
	at := len(journalMagic)
	for at < len(data) {
		batch, n := readFrame(data[at:])
		if batch == nil {
			if later := nextFrame(data, at+1); later >= 0 {
				return h, 0, fmt.Errorf("journal %s is damaged at byte %d of %d: check the disk. Make sure that no task of this "+
					"worker runs (a reboot does), then move the data directory away: the worker begins anew, and what it ran "+
					"is started elsewhere", path, at, len(data))
			}
			break
		}
		for _, r := range batch.GetRecords() {
			if err := h.Apply(r); err != nil {
				return h, 0, fmt.Errorf("journal %s, byte %d: %w", path, at, err)
			}
		}
		at += n
	}
	return h, int64(at), nil
}

// readFrame reads the frame at the beginning of data; nil when there is no whole one.
func readFrame(data []byte) (*wire.JournalBatch, int) {
	if len(data) < frameHeader {
		return nil, 0
	}
	length := binary.LittleEndian.Uint32(data)
	if crc32.Checksum(data[:4], castagnoli) != binary.LittleEndian.Uint32(data[4:]) || uint64(length) > uint64(len(data)-frameHeader) {
		return nil, 0
	}
	payload := data[frameHeader : frameHeader+int(length)]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(data[8:]) {
		return nil, 0
	}
	batch := &wire.JournalBatch{}
	if err := proto.Unmarshal(payload, batch); err != nil {
		return nil, 0
	}
	return batch, frameHeader + int(length)
}

// nextFrame looks for a whole frame at or after from; -1 when there is none.
func nextFrame(data []byte, from int) int {
	for at := from; at+frameHeader < len(data); at++ {
		if batch, _ := readFrame(data[at:]); batch != nil && len(batch.GetRecords()) > 0 {
			return at
		}
	}
	return -1
}

func appendFrame(out []byte, records []*wire.JournalRecord) ([]byte, error) {
	payload, err := proto.Marshal(&wire.JournalBatch{Records: records})
	if err != nil {
		return nil, err
	}
	if len(payload) > frameMax {
		return nil, fmt.Errorf("a frame of %d bytes is too large", len(payload))
	}
	var header [frameHeader]byte
	binary.LittleEndian.PutUint32(header[0:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(header[4:], crc32.Checksum(header[:4], castagnoli))
	binary.LittleEndian.PutUint32(header[8:], crc32.Checksum(payload, castagnoli))
	return append(append(out, header[:]...), payload...), nil
}

// write returns when the records are on the disk. After an error nothing is written any more: a failed fsync is never
// retried, since the kernel may have dropped the pages and say that all is well the second time.
func (j *journal) write(records ...*wire.JournalRecord) error {
	w := &journalWrite{records: records, done: make(chan error, 1), lead: make(chan struct{}, 1)}
	j.mu.Lock()
	j.waiting = append(j.waiting, w)
	if j.busy {
		j.mu.Unlock()
		select {
		case err := <-w.done:
			return err
		case <-w.lead:
			j.mu.Lock()
		}
	}
	j.busy = true
	batch, err := j.waiting, j.failed // this one is among them
	j.waiting = nil
	j.mu.Unlock()
	if err == nil {
		err = j.commit(batch)
	}
	for _, b := range batch {
		b.done <- err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed, j.busy = err, len(j.waiting) > 0
	if j.busy {
		j.waiting[0].lead <- struct{}{} // writes for all that came meanwhile
	}
	return <-w.done
}

// commit writes one frame for all of batch.
func (j *journal) commit(batch []*journalWrite) error {
	var records []*wire.JournalRecord
	for _, w := range batch {
		records = append(records, w.records...)
	}
	for _, r := range records {
		if err := j.history.Apply(r); err != nil {
			return j.failure(err)
		}
	}
	if j.size > journalSlack+int64(len(j.history.Intents)+len(j.history.Ended))*journalPerRow {
		return j.failure(j.rewrite())
	}
	frame, err := appendFrame(nil, records)
	if err != nil {
		return j.failure(err)
	}
	if _, err := j.file.Write(frame); err != nil {
		return j.failure(err)
	}
	j.size += int64(len(frame))
	return j.failure(j.file.Sync())
}

func (j *journal) failure(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("journal %s: %w", j.path, err)
}

// rewrite replaces the file by a short one that says the same.
func (j *journal) rewrite() error {
	out := []byte(journalMagic)
	for rows := range slices.Chunk(j.history.Records(), 10_000) {
		var err error
		if out, err = appendFrame(out, rows); err != nil {
			return err
		}
	}
	if err := replaceFile(j.path, out); err != nil {
		return err
	}
	return j.reopen(int64(len(out)))
}

// reopen opens the file for appending after its first size bytes.
func (j *journal) reopen(size int64) error {
	if j.file != nil {
		_ = j.file.Close() // replaced: nothing in it is needed any more
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if info, err := f.Stat(); err != nil || info.Size() != size {
		if err := errors.Join(err, f.Truncate(size), f.Sync()); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	j.file, j.size = f, size
	return nil
}

// close waits for nobody: the caller has no write under way.
func (j *journal) close() error { return j.file.Close() }

// replaceFile puts data in place of path: after a crash there is the old content or the new one.
func replaceFile(path string, data []byte) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
