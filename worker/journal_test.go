package worker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
	"github.com/musterhpc/muster/worker/step"
)

func id(n uint64) muster.AllocID { return muster.AllocID{Epoch: 1, Counter: n} }

func at(index muster.Index) muster.Version { return muster.Version{Epoch: 1, Index: index} }

func sameHistory(a, b step.History) string { return cmp.Diff(a, b, cmpopts.EquateEmpty()) }

func open(t *testing.T, path string) (*journal, step.History) {
	t.Helper()
	j, h, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	return j, h
}

func TestWhatWasWrittenIsThereAfterTheAgentDied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, h := open(t, path)
	if d := sameHistory(step.NewHistory(), h); d != "" {
		t.Error(d)
	}
	ended := muster.AllocReport{ID: id(2), Phase: muster.AllocEnded, Class: muster.ClassPrepare, Message: "no such directory"}
	for _, r := range []*wire.JournalRecord{
		step.IntentRecord(at(7), id(1), step.Intent{Boot: "boot-a", Time: 1000}),
		step.IntentRecord(at(9), id(2), step.Intent{Boot: "boot-a", Time: 2000}),
		step.EndedRecord(at(8), ended), // the highest stays
		step.IntentRecord(at(10), id(3), step.Intent{Boot: "boot-a", Time: 3000}),
		step.ForgetRecord(at(12), id(3)),
	} {
		if err := j.write(r); err != nil {
			t.Fatal(err)
		}
	}
	want := step.History{
		Seen:    at(12),
		Intents: map[muster.AllocID]step.Intent{id(1): {Boot: "boot-a", Time: 1000}, id(2): {Boot: "boot-a", Time: 2000}},
		Ended:   map[muster.AllocID]muster.AllocReport{id(2): ended},
	}
	// The first was not closed: it died.
	again, h := open(t, path)
	if d := sameHistory(want, h); d != "" {
		t.Error(d)
	}
	if err := errors.Join(j.close(), again.close()); err != nil {
		t.Error(err)
	}
}

// A crash may cut the file anywhere: what was acknowledged before is read, the rest is dropped, and writing goes on.
func TestATornTailIsDroppedAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j, _ := open(t, path)
	var sizes []int64 // after n records
	for n := uint64(0); n < 4; n++ {
		if n > 0 {
			if err := j.write(step.IntentRecord(at(muster.Index(n)), id(n), step.Intent{Boot: "b", Time: 1})); err != nil {
				t.Fatal(err)
			}
		}
		sizes = append(sizes, j.size)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range whole {
		for _, tail := range [][]byte{nil, make([]byte, 100)} { // shorter, or grown without content
			if err := os.WriteFile(path, append(bytes.Clone(whole[:cut]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			if tail != nil && int64(cut) < sizes[0] {
				continue // the head is written to another file first and renamed
			}
			complete := 0
			for n, size := range sizes {
				if int64(cut) >= size {
					complete = n
				}
			}
			torn, h := open(t, path)
			if len(h.Intents) != complete {
				t.Fatalf("cut at %d: %d intents, want %d", cut, len(h.Intents), complete)
			}
			if err := errors.Join(torn.write(step.IntentRecord(at(99), id(99), step.Intent{Boot: "b", Time: 1})), torn.close()); err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			after, h := open(t, path)
			if len(h.Intents) != complete+1 || h.Seen != at(99) {
				t.Fatalf("cut at %d: lost what was written after it: %+v", cut, h)
			}
			if err := after.close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestADamagedJournalIsRefusedWithOneClearMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := open(t, path)
	first := j.size
	for n := range uint64(3) {
		if err := j.write(step.IntentRecord(at(1), id(n+1), step.Intent{Boot: "b", Time: 1})); err != nil {
			t.Fatal(err)
		}
	}
	last := j.size
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := first; i < last-(last-first)/3; i++ { // any byte of any frame but the last
		bad := bytes.Clone(whole)
		bad[i] ^= 0x40
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openJournal(path); err == nil || !strings.Contains(err.Error(), "is damaged at byte") {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	if err := os.WriteFile(path, []byte("something else entirely"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(path); err == nil || !strings.Contains(err.Error(), "is not a journal") {
		t.Error(err)
	}
}

func TestALongJournalIsRewrittenShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := open(t, path)
	j.size = 2 * journalSlack
	if err := j.write(step.IntentRecord(at(5), id(1), step.Intent{Boot: "b", Time: 1})); err != nil {
		t.Fatal(err)
	}
	if err := j.write(step.ForgetRecord(at(6), id(2))); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 200 || info.Size() != j.size {
		t.Errorf("%d bytes, thought %d: %v", info.Size(), j.size, err)
	}
	again, h := open(t, path)
	if len(h.Intents) != 1 || h.Seen != at(6) {
		t.Errorf("%+v", h)
	}
	if err := errors.Join(j.close(), again.close()); err != nil {
		t.Error(err)
	}
}

// slowDisk lets the test say when an fsync ends, and with what.
type slowDisk struct {
	journalFile
	syncs chan chan error
}

func (d *slowDisk) Sync() error {
	answer := make(chan error)
	d.syncs <- answer
	if err := <-answer; err != nil {
		return err
	}
	return d.journalFile.Sync()
}

func TestIntentsThatComeWhileTheDiskIsBusyShareTheNextSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := open(t, path)
	disk := &slowDisk{j.file, make(chan chan error)}
	j.file = disk
	var wg sync.WaitGroup
	write := func(n uint64) {
		wg.Go(func() {
			if err := j.write(step.IntentRecord(at(1), id(n), step.Intent{Boot: "b", Time: 1})); err != nil {
				t.Error(err)
			}
		})
	}
	write(1)
	first := <-disk.syncs
	for n := uint64(2); n <= 20; n++ {
		write(n)
	}
	for waiting := 0; waiting < 19; {
		j.mu.Lock()
		waiting = len(j.waiting)
		j.mu.Unlock()
	}
	first <- nil
	(<-disk.syncs) <- nil
	wg.Wait()
	again, h := open(t, path)
	if len(h.Intents) != 20 {
		t.Errorf("%d intents", len(h.Intents))
	}
	if err := errors.Join(j.close(), again.close()); err != nil {
		t.Error(err)
	}
}

func TestAfterAFailedSyncNothingIsWritten(t *testing.T) {
	j, _ := open(t, filepath.Join(t.TempDir(), "journal"))
	disk := &slowDisk{j.file, make(chan chan error, 1)}
	j.file = disk
	go func() { (<-disk.syncs) <- errors.New("input/output error") }()
	for range 2 { // the second doesn't touch the disk
		if err := j.write(step.IntentRecord(at(1), id(1), step.Intent{Boot: "b", Time: 1})); err == nil || !strings.Contains(err.Error(), "input/output error") {
			t.Error(err)
		}
	}
	if err := j.close(); err != nil {
		t.Error(err)
	}
}
