//go:build chaos

package chaos

import (
	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/test/chaos/check"
)

// now reads the clock that all of a run shares.
func now() check.Instant { return clock(unix.CLOCK_BOOTTIME) }

// ofWall is the wall clock's distance to it: nobody sets this machine's clock while a run lasts.
var ofWall = now() - clock(unix.CLOCK_REALTIME)

// fromWall gives the instant of a wall clock's milliseconds.
func fromWall(milliseconds int64) check.Instant { return check.Instant(milliseconds*1e6) + ofWall }

func clock(id int32) check.Instant {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic("chaos: a kernel without CLOCK_BOOTTIME: " + err.Error())
	}
	return check.Instant(t.Nano())
}
