package muster

import (
	"fmt"
	"slices"
	"strings"
)

// Allows says whether a user, who is in these groups, may submit to the queue.
func (q *QueueSpec) Allows(user string, groups []string) bool {
	return len(q.Allow) == 0 || slices.ContainsFunc(q.Allow, func(who string) bool {
		group, isGroup := strings.CutPrefix(who, "group:")
		return who == Everyone || isGroup && slices.Contains(groups, group) || !isGroup && who == user
	})
}

// NamesGroups says whether it matters to the queue in which groups a user is.
func (q *QueueSpec) NamesGroups() bool {
	return slices.ContainsFunc(q.Allow, func(who string) bool { return strings.HasPrefix(who, "group:") })
}

// WithDefaults gives a job that is sent to the queue what it leaves to it: the spec itself, or a copy.
func (q *QueueSpec) WithDefaults(s *JobSpec) *JobSpec {
	limit := s.TimeLimit
	if limit == 0 {
		limit = q.Defaults.TimeLimit
	}
	priority := s.Priority
	if s.PriorityOfQueue {
		priority = DefaultPriority
		if q.Defaults.HasPriority {
			priority = q.Defaults.Priority
		}
		if q.Caps.HasPriority { // who says nothing asks for no more than is allowed
			priority = min(priority, q.Caps.Priority)
		}
	}
	if limit == s.TimeLimit && priority == s.Priority && !s.PriorityOfQueue {
		return s
	}
	filled := *s
	filled.TimeLimit, filled.Priority, filled.PriorityOfQueue = limit, priority, false
	return &filled
}

// CheckCaps says what a job asks for beyond the queue's caps, or nil. The error's Field is as Validate's.
func (q *QueueSpec) CheckCaps(s *JobSpec) *Error {
	over := func(field, format string, args ...any) *Error {
		err := Errorf(KindInvalid, "queue %q "+format, append([]any{q.Name}, args...)...)
		err.Field = field
		return err
	}
	if limit := q.Caps.TimeLimit; limit > 0 && s.TimeLimit == 0 {
		return over("time_limit", "takes only jobs with a time_limit, of at most %s", FormatDuration(limit)).
			WithHint("Say time_limit = %q", FormatDuration(limit))
	} else if limit > 0 && s.TimeLimit > limit {
		return over("time_limit", "caps time_limit at %s, and the job asks for %s", FormatDuration(limit), FormatDuration(s.TimeLimit))
	}
	if err := q.CheckPriority(s.Priority); err != nil {
		return err
	}
	if limit := q.Caps.StopAfter; limit > 0 {
		for i := range s.Groups {
			if asked := s.Groups[i].Disconnect.StopAfter; asked > limit {
				return over(fmt.Sprintf("groups[%d].disconnect.stop_after", i), "caps stop_after at %s, and the job asks for %s",
					FormatDuration(limit), FormatDuration(asked))
			}
		}
	}
	return nil
}

// CheckPriority says that a priority is above the queue's cap, or nil.
func (q *QueueSpec) CheckPriority(priority int) *Error {
	if !q.Caps.HasPriority || priority <= q.Caps.Priority {
		return nil
	}
	err := Errorf(KindInvalid, "queue %q caps priority at %d, and the job asks for %d", q.Name, q.Caps.Priority, priority)
	err.Field = "priority"
	return err
}

// ShapeIn is the shape of a spec in a queue: what the queue's nodes must be is asked of them too.
func ShapeIn(s *JobSpec, q *QueueSpec) Shape {
	shape := ShapeOf(s)
	if len(q.Constraints) > 0 {
		for i := range shape.Groups {
			g := &shape.Groups[i]
			g.Constraints = slices.Concat(g.Constraints, q.Constraints)
		}
	}
	return shape
}

// MilliGPUs is how much of GPUs a rank asks for.
func (r *Resources) MilliGPUs() MilliGPUs {
	if r.Share > 0 {
		return r.Share
	}
	return MilliGPUs(r.GPUs) * WholeGPU
}

// MilliGPUs is how much of GPUs all ranks ask for.
func (s *JobSpec) MilliGPUs() MilliGPUs {
	var n MilliGPUs
	for i := range s.Groups {
		n += MilliGPUs(s.Groups[i].Count) * s.Groups[i].Task.Resources.MilliGPUs()
	}
	return n
}
