//go:build !linux

package cluster

import "time"

var started = time.Now()

// bootTime is monotonic, without the time that the machine was suspended: enough to develop with.
func bootTime() Boot { return Boot(time.Since(started)) + 1 }
