package exec

import (
	"testing"

	"github.com/musterhpc/muster"
)

func TestATaskThatTookTooMuchMemoryIsToldWhatToDo(t *testing.T) {
	for want, is := range map[string]struct {
		peak  muster.Bytes
		unset bool
	}{
		"killed at 4GiB of 4GiB memory, the default: set memory": {4 * muster.GiB, true},
		"killed at 4GiB of 4GiB memory: raise memory":            {5 * muster.GiB, false},
		"killed above 4GiB memory, the default: set memory":      {0, true},
	} {
		var s Status
		ending{ooms: 1, peak: is.peak, code: 137}.conclude(&s, &Task{Memory: 4 * muster.GiB, MemoryUnset: is.unset}, muster.Stop{})
		if s.Class != muster.ClassOOM || s.Message != want {
			t.Errorf("%v %q, want %q", s.Class, s.Message, want)
		}
	}
}
