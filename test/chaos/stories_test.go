//go:build chaos

package chaos

import (
	"testing"
	"time"
)

// A server that was away for a while is one of the majority as soon as it is back: when another one goes then, writes go on.
func TestStoryOfAServerThatCameBack(t *testing.T) {
	tell(t,
		Step{At: 5 * time.Second, For: 12 * time.Second, Faults: []Fault{Kill{[]string{follower}}}},
		Step{At: 20 * time.Second, For: 12 * time.Second, Faults: []Fault{KillOther{}}},
	)
}

// A leader sleeps for 20 s, longer than leases of the suite's jobs last, twice, once while all links are slow: it renews
// nothing when it wakes, and takes nobody for lost who was well.
func TestStoryOfALeaderThatSleepsForTwentySeconds(t *testing.T) {
	tell(t,
		Step{At: 5 * time.Second, For: 20 * time.Second, Faults: []Fault{Pause{leader}}},
		Step{At: 30 * time.Second, For: 20 * time.Second, Faults: []Fault{Suspend{leader}, Weather{"delay", nil, Quality{Delay: 40 * time.Millisecond}}}},
	)
}

// The disk of the leader hangs: it ends, comes back once the disk is well, and lacks nothing.
func TestStoryOfALeaderWhoseDiskHangs(t *testing.T) {
	tell(t, Step{At: 5 * time.Second, For: 8 * time.Second, Faults: []Fault{Disk{leader, "hang"}}})
}

// A server that was alone comes back into the midst of the others, and again while the leader's links are bad.
func TestStoryOfAnIsolatedServerThatRejoins(t *testing.T) {
	tell(t,
		Step{At: 5 * time.Second, For: 12 * time.Second, Faults: []Fault{Partition{alone, []string{follower}}}},
		Step{At: 20 * time.Second, For: 8 * time.Second, Faults: []Fault{
			Partition{alone, []string{follower}}, Weather{"jitter", []string{leader}, Quality{Jitter: 60 * time.Millisecond}}}},
	)
}
