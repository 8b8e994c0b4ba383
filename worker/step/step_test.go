package step

import (
	"testing"

	"github.com/musterhpc/muster"
)

// The life of an allocation, line by line: what is wanted, what is, what to do next.
func TestStep(t *testing.T) {
	const (
		placed    = muster.AllocPlaced
		preparing = muster.AllocPreparing
		ready     = muster.AllocReady
		running   = muster.AllocRunning
		stopping  = muster.AllocStopping
		ended     = muster.AllocEnded
	)
	wait := desired{Known: true}
	open := desired{Known: true, Go: true}
	gone := desired{Known: true, Go: true, Gone: true}
	stop := func(m muster.StopMode) desired { return desired{Known: true, Go: true, Stop: muster.Stop{Mode: m}} }
	for _, c := range []struct {
		story string
		d     desired
		o     observed
		want  action
	}{
		{"placed", wait, observed{Phase: placed}, doPrepare},
		{"placed, the barrier open", open, observed{Phase: placed, Leased: true}, doPrepare},
		{"preparing", open, observed{Phase: preparing, Busy: true, Leased: true}, doNothing},
		{"ready, others of its gang are not", wait, observed{Phase: ready, Leased: true}, doNothing},
		{"ready, no renewal answered yet", open, observed{Phase: ready}, doNothing},
		{"ready", open, observed{Phase: ready, Leased: true}, doStart},
		{"starting", open, observed{Phase: ready, Leased: true, Busy: true, Forked: true}, doNothing},
		{"started, its supervisor has not said so yet", open, observed{Phase: ready, Leased: true, Forked: true}, doNothing},
		{"running", open, observed{Phase: running, Leased: true, Forked: true}, doNothing},
		{"running, lease nearly over: its supervisor's matter", open, observed{Phase: running, Forked: true}, doNothing},

		{"stopped before anything was done", stop(muster.StopSave), observed{Phase: placed}, doEnd},
		{"stopped while it is prepared", stop(muster.StopSave), observed{Phase: preparing, Busy: true}, doNothing},
		{"stopped before its start", stop(muster.StopSave), observed{Phase: ready, Leased: true}, doStop},
		{"stopped while it starts", stop(muster.StopSave), observed{Phase: ready, Busy: true, Forked: true}, doNothing},
		{"asked to save itself", stop(muster.StopSave), observed{Phase: running}, doStop},
		{"has been asked", stop(muster.StopSave), observed{Phase: stopping, Asked: muster.StopSave}, doNothing},
		{"asked again, more strongly", stop(muster.StopKill), observed{Phase: stopping, Asked: muster.StopSave}, doStop},
		{"asked again, less strongly", stop(muster.StopSave), observed{Phase: stopping, Asked: muster.StopKill}, doNothing},

		{"ended, nobody knows", open, observed{Phase: ended, Forked: true}, doNothing},
		{"ended, a stop comes late", stop(muster.StopKill), observed{Phase: ended}, doNothing},
		{"ended, the state has it", gone, observed{Phase: ended, Forked: true}, doForget},
		{"ended, being forgotten", gone, observed{Phase: ended, Busy: true}, doNothing},

		{"gone before anything was done", gone, observed{Phase: placed}, doForget},
		{"gone, prepared", gone, observed{Phase: ready, Leased: true}, doKill},
		{"gone, and it lives", gone, observed{Phase: running, Forked: true}, doKill},
		{"gone, asked to save itself before", gone, observed{Phase: stopping, Asked: muster.StopSave}, doKill},
		{"gone, being killed", gone, observed{Phase: stopping, Asked: muster.StopKill}, doNothing},

		{"re-adopted, no view yet", desired{}, observed{Phase: running, Forked: true}, doNothing},
		{"re-adopted ready, no view yet", desired{}, observed{Phase: ready}, doNothing},
		{"re-adopted, on the kill list", desired{Gone: true}, observed{Phase: running, Forked: true}, doKill},
		{"re-adopted ended, acknowledged before", desired{Gone: true}, observed{Phase: ended}, doForget},
	} {
		if got := step(c.d, c.o); got != c.want {
			t.Errorf("%s: %s, want %s", c.story, got, c.want)
		}
	}
}
