package scheduler

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// View is the scheduler's image of a snapshot. One goroutine at a time may use it: Schedule and Explain work in place.
type View struct{}

// NewView makes the image of s.
func NewView(s *state.Snapshot) *View { panic("contract") }

// Advance brings the view forward to s; c names what changed since the view's snapshot (of several entries: all their lists).
func (v *View) Advance(s *state.Snapshot, c state.Changed) { panic("contract") }

// Schedule decides what starts now.
func Schedule(v *View, signals Signals, now muster.Time) Plan { panic("contract") }

// Explain says where a job of the view's snapshot stands and why it waits; false: there is no such job.
func (v *View) Explain(job muster.JobID, signals Signals, now muster.Time) (Explained, bool) {
	panic("contract")
}
