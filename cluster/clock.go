package cluster

import (
	"time"

	"github.com/musterhpc/muster/cluster/duty"
)

// Clock is the two clocks a server reads.
type Clock struct {
	// Wall stamps entries.
	Wall func() time.Time
	// Boot measures leases and quorum contact: it goes on while the machine is suspended (CLOCK_BOOTTIME).
	Boot func() Boot
}

// Boot is a moment since the machine started, suspension included. Zero is before everything.
type Boot = duty.Boot

func (c Clock) withDefaults() Clock {
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Boot == nil {
		c.Boot = bootTime
	}
	return c
}
