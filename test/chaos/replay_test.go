//go:build chaos

package chaos

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm"
	"github.com/musterhpc/muster/test/chaos/check"
)

// replay applies a server's log from its first entry up to an index that is known to be applied, and gives the digest of each
// index, and where what is counted again differs from what the state says.
func replay(dir, server string, upTo muster.Index) (digests []check.Digest, err error) {
	store, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(dir, "server", "raft.db"), BoltOptions: &bbolt.Options{ReadOnly: true, Timeout: time.Second},
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	first, err := store.FirstIndex()
	if err != nil || first != 1 {
		return nil, err // compacted: what is left can't be applied from the start
	}
	last, err := store.LastIndex()
	if err != nil {
		return nil, err
	}
	fatal := ""
	machine := fsm.New(func(*fsm.Published) {}, func(message string) { fatal = message })
	for index := first; index <= min(last, uint64(upTo)); index++ {
		var entry raft.Log
		if err := store.GetLog(index, &entry); err != nil {
			return digests, fmt.Errorf("entry %d: %w", index, err)
		}
		if entry.Type != raft.LogCommand {
			continue
		}
		machine.Apply(&entry)
		if fatal != "" {
			return digests, fmt.Errorf("entry %d can't be applied: %s", index, fatal)
		}
		snapshot := machine.Published().Snapshot
		d := check.Digest{Server: "the log of " + server, Time: now(), Epoch: 1, Index: muster.Index(index), Level: 1,
			Digest: fmt.Sprintf("%016x", snapshot.Digest())}
		if err := snapshot.CheckInvariants(); err != nil {
			d.Broken = err.Error()
		}
		digests = append(digests, d)
	}
	return digests, nil
}

// replayLogs replays each server's log: all of them have to come to what the servers said while they ran.
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
		r.say("%s: %d entries replayed", name, len(digests))
		h.Digests = append(h.Digests, digests...)
	}
	return nil
}
