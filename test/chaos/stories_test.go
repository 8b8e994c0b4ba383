//go:build chaos

package chaos

import (
	"testing"
	"time"
)

// A server that was away for a while is one of the majority as soon as it is back: when another one goes then, writes go on.
func TestAServerThatCameBackCounts(t *testing.T) {
	start(t, settings{seed: 1, steps: []Step{
		{At: 5 * time.Second, For: 12 * time.Second, Faults: []Fault{Kill{[]string{follower}}}},
		{At: 20 * time.Second, For: 12 * time.Second, Faults: []Fault{KillOther{}}},
	}})
}
