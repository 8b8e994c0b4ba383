//go:build chaos

package chaos

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm"
	"github.com/musterhpc/muster/test/chaos/check"
)

// recounts is of how many indices at most of one log everything is counted again: that costs as much as the state is large.
const recounts = 3000

// replay applies what a server has on its disk, entry by entry from the first, up to an index that is known to be applied. Where
// entries are missing it goes on from the next snapshot. It gives the digest of each index, and where what is counted again
// differs from what the state says.
func replay(dir, server string, upTo muster.Index) (digests []check.Digest, err error) {
	store, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(dir, "server", "raft.db"), BoltOptions: &bbolt.Options{ReadOnly: true, Timeout: time.Second},
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	last, err := store.LastIndex()
	if err != nil {
		return nil, err
	}
	last = min(last, uint64(upTo))
	fatal := ""
	machine := fsm.New(nil, func(message string) { fatal = message })
	for index := uint64(1); index <= last; index++ {
		var entry raft.Log
		switch err := store.GetLog(index, &entry); {
		case errors.Is(err, raft.ErrLogNotFound):
			if index, err = restoreNext(machine, filepath.Join(dir, "server"), index); err != nil {
				return digests, err
			}
		case err != nil:
			return digests, fmt.Errorf("entry %d: %w", index, err)
		case entry.Type != raft.LogCommand:
			continue
		default:
			machine.Apply(&entry)
		}
		if fatal != "" {
			return digests, fmt.Errorf("entry %d can't be applied: %s", index, fatal)
		}
		snapshot := machine.Published().Snapshot
		d := check.Digest{Server: "the disk of " + server, Time: now(), Epoch: 1, Index: muster.Index(index), Level: 1,
			Digest: fmt.Sprintf("%016x", snapshot.Digest())}
		if index%(last/recounts+1) == 0 || index == last {
			if err := snapshot.CheckInvariants(); err != nil {
				d.Broken = err.Error()
			}
		}
		digests = append(digests, d)
	}
	return digests, nil
}

// restoreNext gives a machine the oldest snapshot that holds index, and that snapshot's own.
func restoreNext(machine *fsm.FSM, dir string, index uint64) (uint64, error) {
	store, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, hclog.NewNullLogger())
	if err != nil {
		return 0, err
	}
	list, err := store.List()
	if err != nil {
		return 0, err
	}
	for _, meta := range slices.Backward(list) { // the newest comes first
		if meta.Index < index {
			continue
		}
		_, file, err := store.Open(meta.ID)
		if err != nil {
			return 0, err
		}
		return meta.Index, machine.Restore(io.NopCloser(file))
	}
	return 0, fmt.Errorf("its log lacks entry %d, and no snapshot holds it", index)
}

// replayLogs replays what each server has on its disk: all of them have to come to what the servers said while they ran.
func (r *run) replayLogs(h *check.History) error {
	applied := muster.Index(0)
	for i := range h.Digests {
		applied = max(applied, h.Digests[i].Index)
	}
	for _, name := range r.world.Servers {
		digests, err := replay(r.world.Machines[name].Dir, name, applied)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(digests) == 0 {
			r.say("%s: nothing on its disk to replay", name)
			continue
		}
		r.say("%s: %d entries replayed, from %d to %d", name, len(digests), digests[0].Index, digests[len(digests)-1].Index)
		h.Digests = append(h.Digests, digests...)
	}
	return nil
}
