package exec

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/musterhpc/muster"
)

// ending is how the main process of a task ended, as the kernel tells it.
type ending struct {
	code    int            // exit code; meaningless with a signal
	signal  syscall.Signal // 0 = it exited
	ooms    int            // processes of the task that the kernel killed for memory
	peak    muster.Bytes   // of memory; 0 = not known
	refused string         // not "": the process could not be started, and why; code says 126 or 127
}

// conclude fills in s how the task ended: a stop that was asked for decides, whatever the exit code; then memory, then the
// exit code.
func (e ending) conclude(s *Status, t *Task, stop muster.Stop) {
	s.Peak = e.peak
	s.ExitCode, s.Signal = e.code, int(e.signal)
	if e.signal != 0 {
		s.ExitCode = 128 + int(e.signal)
	}
	success := e.signal == 0 && e.refused == "" && t.success(e.code)
	switch {
	case stop.Mode != muster.StopNone:
		s.Class, s.Message = stop.Class, stop.Reason
	case success:
		s.Class, s.Message = muster.ClassNone, ""
	case e.ooms > 0:
		s.Class, s.Signal, s.ExitCode = muster.ClassOOM, int(syscall.SIGKILL), 128+int(syscall.SIGKILL)
		s.Message = e.killedForMemory(t)
	case e.refused != "":
		s.Class, s.Message = muster.ClassExit, e.refused
	case e.signal != 0:
		s.Class, s.Message = muster.ClassExit, signalName(e.signal)
	default:
		s.Class, s.Message = muster.ClassExit, "" // the code says it all
	}
}

// killedForMemory says how much there was, and what to do: who named an amount raises it, who did not names one.
func (e ending) killedForMemory(t *Task) string {
	said, then := "", "raise memory"
	if t.MemoryUnset {
		said, then = ", the default", "set memory"
	}
	if e.peak == 0 {
		return fmt.Sprintf("killed above %s memory%s: %s", t.Memory.Human(), said, then)
	}
	return fmt.Sprintf("killed at %s of %s memory%s: %s", min(e.peak, t.Memory).Human(), t.Memory.Human(), said, then)
}

func (t *Task) success(code int) bool {
	if len(t.Success) == 0 {
		return code == 0
	}
	return slices.Contains(t.Success, code)
}
