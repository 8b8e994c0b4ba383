package muster

import (
	"slices"
	"strings"
	"time"
)

// The defaults of a job that a user can't override by leaving out: see docs of the job file.
const (
	DefaultPriority      = 50
	MaxPriority          = 100
	DefaultRetryDelay    = 15 * time.Second
	DefaultRetryMaxDelay = 10 * time.Minute
	DefaultKillSignal    = "SIGTERM"
	DefaultKillTimeout   = 30 * time.Second
	DefaultLogSize       = 100 * MiB
	DefaultLogFiles      = 5
)

// DefaultJobSpec is where whoever reads a job begins: a spec with every number that can be left out. What the user said then
// replaces it. (A zero may be said, so FillDefaults can't tell one from what was left out.)
func DefaultJobSpec() JobSpec {
	return JobSpec{Type: Batch, Queue: DefaultQueue, Priority: DefaultPriority}
}

// DefaultGroup is where whoever reads a group and its task begins; see DefaultJobSpec.
func DefaultGroup() Group {
	return Group{
		Count:      1,
		Retry:      Retry{Delay: DefaultRetryDelay, MaxDelay: DefaultRetryMaxDelay},
		Disconnect: Disconnect{StopAfter: DefaultLease},
		Task: Task{
			KillSignal:   DefaultKillSignal,
			KillTimeout:  DefaultKillTimeout,
			SuccessCodes: []int{0},
			Logs:         Logs{MaxSize: DefaultLogSize, MaxFiles: DefaultLogFiles},
		},
	}
}

// FillDefaults fills in what is empty and what follows from other fields: queue, type, a group's name (the job's), a task's
// name (its group's), retry.on once there are attempts, kill_signal, success_codes; and sorts labels by key. Numbers are left as
// they are: begin with DefaultJobSpec and DefaultGroup. It may be called again without effect.
//
// Cores and memory of 0 stay: they mean the part of the node that comes with the GPUs, which is known at placement; see
// Node.Share.
func (s *JobSpec) FillDefaults() {
	if s.Type == JobTypeUnknown {
		s.Type = Batch
	}
	if s.Queue == "" {
		s.Queue = DefaultQueue
	}
	slices.SortStableFunc(s.Labels, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.Name == "" {
			g.Name = s.Name
		}
		if g.Retry.Attempts > 0 && len(g.Retry.On) == 0 {
			g.Retry.On = []Class{ClassExit, ClassOOM, ClassTimeout}
		}
		if g.Task.Name == "" {
			g.Task.Name = g.Name
		}
		if g.Task.KillSignal == "" {
			g.Task.KillSignal = DefaultKillSignal
		}
		if len(g.Task.SuccessCodes) == 0 {
			g.Task.SuccessCodes = []int{0}
		}
	}
}
