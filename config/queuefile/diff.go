package queuefile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster"
)

// Change is one thing that a file would change. Kind is "added", "removed" or "changed", which says an attribute with its old and new
// value, "" where it is as usual.
type Change struct {
	Queue     string // "" = the scheduling block
	Kind      string
	Attribute string
	Old, New  string
}

func (c Change) String() string {
	value := func(v string) string {
		if v == "" {
			return "(as usual)"
		}
		return v
	}
	what := "scheduling"
	if c.Queue != "" {
		what = "queue " + c.Queue
	}
	if c.Kind != "changed" {
		return what + ": " + c.Kind
	}
	return fmt.Sprintf("%s: %s %s → %s", what, c.Attribute, value(c.Old), value(c.New))
}

// Diff lists what makes new of old, by queue.
func Diff(old, new *File) []Change {
	var changes []Change
	for i := range new.Queues {
		q := &new.Queues[i]
		at, known := slices.BinarySearchFunc(old.Queues, q.Name, muster.QueueSpec.CompareName)
		before := muster.NewQueueSpec(q.Name)
		if known {
			before = old.Queues[at]
		} else if q.Name != muster.DefaultQueue {
			changes = append(changes, Change{Queue: q.Name, Kind: "added"})
		}
		changes = append(changes, differences(q.Name, attributes(&before), attributes(q))...)
	}
	for i := range old.Queues {
		q := &old.Queues[i]
		if _, kept := slices.BinarySearchFunc(new.Queues, q.Name, muster.QueueSpec.CompareName); kept {
			continue
		}
		if q.Name == muster.DefaultQueue { // always there
			usual := muster.NewQueueSpec(q.Name)
			changes = append(changes, differences(q.Name, attributes(q), attributes(&usual))...)
			continue
		}
		changes = append(changes, Change{Queue: q.Name, Kind: "removed"})
	}
	slices.SortStableFunc(changes, func(a, b Change) int { return strings.Compare(a.Queue, b.Queue) })
	return append(changes, differences("", settings(&old.Policy), settings(&new.Policy))...)
}

type attribute struct{ name, value string }

// differences compares two lists of the same attributes.
func differences(queue string, old, new []attribute) []Change {
	var changes []Change
	for i := range new {
		if old[i].value != new[i].value {
			changes = append(changes, Change{Queue: queue, Kind: "changed", Attribute: new[i].name, Old: old[i].value, New: new[i].value})
		}
	}
	return changes
}

// attributes is all that a queue says, in the file's words; the same names for each.
func attributes(q *muster.QueueSpec) []attribute {
	var quota []string
	for _, g := range q.Quota {
		quota = append(quota, strings.TrimSpace(fmt.Sprintf("%d %s", g.GPUs, g.Model)))
	}
	var nodes []string
	for _, c := range q.Constraints {
		nodes = append(nodes, strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Attribute, c.Operator, c.Value)))
	}
	budget := ""
	if q.Budget != (muster.Budget{}) {
		budget = fmt.Sprintf("%d GPU-hours a %s", q.Budget.GPUHours, q.Budget.Period)
	}
	idle := ""
	if q.Idle != (muster.IdleRule{}) {
		idle = fmt.Sprintf("after %s below %d%%, cancel %t", muster.FormatDuration(q.Idle.After), q.Idle.Below, q.Idle.Cancel)
	}
	return []attribute{
		{"weight", thousandths(q.Weight)},
		{"allow", strings.Join(q.Allow, ", ")},
		{"gpus", strings.Join(quota, ", ")},
		{"max_gpus", unlessZero(q.MaxGPUs, strconv.Itoa)},
		{"user_gpus", unlessZero(q.UserGPUs, strconv.Itoa)},
		{"max_running", unlessZero(q.MaxRunning, strconv.Itoa)},
		{"max_pending", unlessZero(q.MaxPending, strconv.Itoa)},
		{"min_runtime", unlessZero(q.MinRuntime, muster.FormatDuration)},
		{"charge", thousandths(q.Charge)},
		{"defaults.time_limit", unlessZero(q.Defaults.TimeLimit, muster.FormatDuration)},
		{"defaults.priority", ifSaid(q.Defaults.HasPriority, q.Defaults.Priority)},
		{"caps.time_limit", unlessZero(q.Caps.TimeLimit, muster.FormatDuration)},
		{"caps.priority", ifSaid(q.Caps.HasPriority, q.Caps.Priority)},
		{"caps.stop_after", unlessZero(q.Caps.StopAfter, muster.FormatDuration)},
		{"constraint", strings.Join(nodes, " and ")},
		{"budget", budget},
		{"idle", idle},
	}
}

func settings(p *muster.Policy) []attribute {
	return []attribute{
		{"fair_share", strconv.FormatBool(p.FairShare)},
		{"order", string(p.Order)},
		{"reservations", strconv.Itoa(p.Reservations)},
		{"max_preemptions", strconv.Itoa(p.MaxPreemptions)},
		{"backfill", string(p.Backfill)},
		{"preemption", string(p.Preemption)},
		{"half_life", muster.FormatDuration(p.HalfLife)},
		{"objective", string(p.Objective)},
		{"round", muster.FormatDuration(p.Round)},
		{"wide.gpus", strconv.Itoa(p.WideGPUs)},
		{"wide.after", muster.FormatDuration(p.WideAfter)},
	}
}

func unlessZero[T comparable](v T, format func(T) string) string {
	var zero T
	if v == zero {
		return ""
	}
	return format(v)
}

func ifSaid(said bool, n int) string {
	if !said {
		return ""
	}
	return strconv.Itoa(n)
}
