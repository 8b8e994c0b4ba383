package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// queueTree is the queues that a trace's jobs go to.
type queueTree struct {
	specs []muster.QueueSpec // sorted by name
	named map[string]string  // the queue of a user
}

// newQueueTree takes the queues of a policy file, or, without any, makes one for each user.
func newQueueTree(given []muster.QueueSpec, jobs []Job) queueTree {
	t := queueTree{specs: given, named: map[string]string{}}
	for i := range jobs {
		user := jobs[i].User
		if _, known := t.named[user]; known {
			continue
		}
		name := queueName(user)
		at, found := slices.BinarySearchFunc(t.specs, name, muster.QueueSpec.CompareName)
		switch {
		case found:
		case len(given) > 0:
			name = muster.DefaultQueue
		default:
			t.specs = slices.Insert(t.specs, at, muster.NewQueueSpec(name))
		}
		t.named[user] = name
	}
	return t
}

// queueName is the queue that a user's name gives; users whose names cannot be a queue's get what is left of them.
func queueName(user string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, user)
	if name = strings.TrimLeft(name, "-_"); name == "" {
		return muster.DefaultQueue
	}
	return name[:min(len(name), 63)]
}

func (c *Cluster) applyQueues(t queueTree, policy *muster.Policy) error {
	p := muster.DefaultPolicy()
	if policy != nil {
		p = *policy
	}
	if _, err := c.apply(&state.ApplyQueues{Queues: t.specs, Policy: p}); err != nil {
		return fmt.Errorf("the policy: %w", err)
	}
	return nil
}
