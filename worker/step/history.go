package step

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// Intent says that an allocation was about to be started.
type Intent struct {
	Boot string
	Time muster.Time
}

// History is what a journal says: the memory of a worker over its own death.
type History struct {
	Seen    muster.Version
	Intents map[muster.AllocID]Intent             // may have been started
	Ended   map[muster.AllocID]muster.AllocReport // ended, and the state doesn't know yet
}

// NewHistory is the memory of a worker that has none.
func NewHistory() History {
	return History{Intents: map[muster.AllocID]Intent{}, Ended: map[muster.AllocID]muster.AllocReport{}}
}

// Apply brings h forward by one record.
func (h *History) Apply(r *wire.JournalRecord) error {
	seen, err := r.GetSeen().Domain()
	if err != nil {
		return err
	}
	if h.Seen.Before(seen) {
		h.Seen = seen
	}
	switch {
	case r.GetIntent() != nil:
		id, err := r.GetIntent().GetAlloc().Domain()
		if err != nil {
			return err
		}
		h.Intents[id] = Intent{Boot: r.GetIntent().GetBoot(), Time: muster.Time(r.GetIntent().GetTime())}
	case r.GetEnded() != nil:
		e, err := r.GetEnded().Domain()
		if err != nil {
			return err
		}
		h.Ended[e.ID] = e
	case r.GetForget() != nil:
		id, err := r.GetForget().Domain()
		if err != nil {
			return err
		}
		delete(h.Intents, id)
		delete(h.Ended, id)
	}
	return nil
}

// Records says h in as few records as it takes, in the order of the allocations.
func (h *History) Records() []*wire.JournalRecord {
	rows := []*wire.JournalRecord{SeenRecord(h.Seen)}
	for _, id := range sortedIDs(h.Intents) {
		rows = append(rows, IntentRecord(h.Seen, id, h.Intents[id]))
	}
	for _, id := range sortedIDs(h.Ended) {
		rows = append(rows, EndedRecord(h.Seen, h.Ended[id]))
	}
	return rows
}

// SeenRecord says which view is the newest that was seen; so do all records.
func SeenRecord(seen muster.Version) *wire.JournalRecord {
	return &wire.JournalRecord{Seen: wire.VersionOf(seen)}
}

// IntentRecord says that an allocation may be started from now on.
func IntentRecord(seen muster.Version, id muster.AllocID, i Intent) *wire.JournalRecord {
	return &wire.JournalRecord{Seen: wire.VersionOf(seen), Record: &wire.JournalRecord_Intent{
		Intent: &wire.StartIntent{Alloc: wire.AllocIDOf(id), Boot: i.Boot, Time: int64(i.Time)}}}
}

// EndedRecord says how an allocation ended that no supervisor knows of.
func EndedRecord(seen muster.Version, r muster.AllocReport) *wire.JournalRecord {
	return &wire.JournalRecord{Seen: wire.VersionOf(seen), Record: &wire.JournalRecord_Ended{Ended: wire.AllocReportOf(&r)}}
}

// ForgetRecord says that nothing of an allocation is to be remembered.
func ForgetRecord(seen muster.Version, id muster.AllocID) *wire.JournalRecord {
	return &wire.JournalRecord{Seen: wire.VersionOf(seen), Record: &wire.JournalRecord_Forget{Forget: wire.AllocIDOf(id)}}
}

func compareIDs(a, b muster.AllocID) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Counter, b.Counter))
}

func sortedIDs[V any](m map[muster.AllocID]V) []muster.AllocID {
	return slices.SortedFunc(maps.Keys(m), compareIDs)
}
