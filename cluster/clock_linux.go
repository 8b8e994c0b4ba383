package cluster

import "golang.org/x/sys/unix"

func bootTime() Boot {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("cluster: the kernel has no CLOCK_BOOTTIME: " + err.Error()) // Linux has it since 2.6.39
	}
	return Boot(t.Nano())
}
