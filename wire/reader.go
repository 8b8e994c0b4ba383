package wire

import (
	"github.com/musterhpc/muster/fsm/state"
)

// Reader answers the API's questions from one snapshot.
type Reader struct{ snapshot *state.Snapshot }

// ReaderOf reads s.
func ReaderOf(s *state.Snapshot) *Reader { return &Reader{snapshot: s} }
