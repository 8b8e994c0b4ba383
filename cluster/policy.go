package cluster

import (
	"time"

	"github.com/musterhpc/muster"
)

// How long ended jobs stay, and how often the duties with a rhythm of their own look. The state will hold these one day.
const (
	keepEndedFor = 30 * 24 * time.Hour
	keepJobs     = 100_000 // jobs known; beyond it the ended ones that ended first go early

	backoffTick = 100 * time.Millisecond
	drainTick   = time.Second
	startTick   = 200 * time.Millisecond
	purgeTick   = 10 * time.Second
	membersTick = time.Second
)

func keptSince(now time.Time) muster.Time { return muster.TimeOf(now.Add(-keepEndedFor)) }
