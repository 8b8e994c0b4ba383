//go:build chaos

package chaos

import (
	"testing"

	"github.com/musterhpc/muster/test/chaos/check"
)

func TestAPowerCutEndsWhatTheNextAgentFinds(t *testing.T) {
	cuts := []check.Instant{10, 50}
	for _, test := range []struct {
		what    string
		started check.Instant
		end     check.Event
		want    check.Instant
	}{
		{"found after the cut", 20, check.Event{Class: "node", Gone: 70}, 50},
		{"started after the last cut", 60, check.Event{Class: "node", Gone: 70}, 70},
		{"over before the cut", 20, check.Event{Class: "node", Gone: 40}, 40},
		{"it ended by itself, and its exit was there to be found", 20, check.Event{Class: "exit", ExitCode: 3, Gone: 70}, 70},
	} {
		if got := goneBy(cuts, test.started, test.end); got != test.want {
			t.Errorf("%s: gone at %d, want %d", test.what, got, test.want)
		}
	}
}

func TestWhatAMachineGivesUpToItsTwinIsNoEnd(t *testing.T) {
	intent := check.Event{Kind: check.Intent, Alloc: "1-1", Machine: "twin"}
	exit := check.Event{Kind: check.Ended, Alloc: "1-1", Machine: "twin"}
	gaveUp := check.Event{Kind: check.Ended, Class: "node", Alloc: "1-1", Machine: "w1"}
	if got := withoutTheOthers([]check.Event{intent, exit, gaveUp}); len(got) != 2 || got[1].Machine != "twin" {
		t.Errorf("what is left: %+v, want the start and the exit of the twin", got)
	}
	both := check.Event{Kind: check.Intent, Alloc: "1-1", Machine: "w1"}
	if got := withoutTheOthers([]check.Event{intent, both, exit, gaveUp}); len(got) != 4 {
		t.Errorf("both started it, and this is left: %+v", got)
	}
	if got := withoutTheOthers([]check.Event{gaveUp}); len(got) != 1 {
		t.Errorf("nobody started it, and its end was left out")
	}
}
