package wire

import "github.com/musterhpc/muster"

// QueueJSON is a queue in muster.v1: what the queues file says of it, in its words, and what it has now, the queues in it included.
type QueueJSON struct {
	Name        string           `json:"name"`
	Weight      float64          `json:"weight"`
	Allow       []string         `json:"allow,omitempty"`
	GPUs        map[string]int64 `json:"gpus,omitempty"` // quota by model; "any"
	MaxGPUs     int64            `json:"max_gpus,omitempty"`
	UserGPUs    int64            `json:"user_gpus,omitempty"`
	MaxRunning  int64            `json:"max_running,omitempty"`
	MaxPending  int64            `json:"max_pending,omitempty"`
	MinRuntime  string           `json:"min_runtime,omitempty"`
	Charge      float64          `json:"charge"`
	Defaults    *QueueJobsJSON   `json:"defaults,omitempty"`
	Caps        *QueueJobsJSON   `json:"caps,omitempty"`
	Constraints []ConstraintJSON `json:"constraint,omitempty"`

	Pending  int64           `json:"pending"`
	Running  int64           `json:"running"`
	HeldGPUs float64         `json:"held_gpus"`
	Users    []QueueUserJSON `json:"users,omitempty"`
}

// QueueJobsJSON is what jobs get, or may ask for at most.
type QueueJobsJSON struct {
	TimeLimit string `json:"time_limit,omitempty"`
	Priority  *int   `json:"priority,omitempty"`
	StopAfter string `json:"stop_after,omitempty"`
}

// QueueUserJSON is who holds GPUs in a queue.
type QueueUserJSON struct {
	User     string  `json:"user"`
	HeldGPUs float64 `json:"held_gpus"`
}

// QueueJSONOf gives the JSON form of a queue.
func QueueJSONOf(x *QueueInfo) (QueueJSON, error) {
	q, err := x.GetSpec().Domain()
	if err != nil {
		return QueueJSON{}, err
	}
	out := QueueJSON{
		Name: q.Name, Weight: float64(q.Weight) / 1000, Allow: q.Allow, MaxGPUs: int64(q.MaxGPUs), UserGPUs: int64(q.UserGPUs),
		MaxRunning: int64(q.MaxRunning), MaxPending: int64(q.MaxPending), MinRuntime: unlessZero(q.MinRuntime, muster.FormatDuration),
		Charge: float64(q.Charge) / 1000, Pending: x.Pending, Running: x.Running, HeldGPUs: float64(x.MilliGpus) / 1000,
	}
	for _, quota := range q.Quota {
		if out.GPUs == nil {
			out.GPUs = map[string]int64{}
		}
		model := quota.Model
		if model == "" {
			model = "any"
		}
		out.GPUs[model] = int64(quota.GPUs)
	}
	if q.Defaults != (muster.QueueDefaults{}) {
		out.Defaults = &QueueJobsJSON{TimeLimit: unlessZero(q.Defaults.TimeLimit, muster.FormatDuration)}
		if q.Defaults.HasPriority {
			out.Defaults.Priority = &q.Defaults.Priority
		}
	}
	if q.Caps != (muster.QueueCaps{}) {
		out.Caps = &QueueJobsJSON{TimeLimit: unlessZero(q.Caps.TimeLimit, muster.FormatDuration),
			StopAfter: unlessZero(q.Caps.StopAfter, muster.FormatDuration)}
		if q.Caps.HasPriority {
			out.Caps.Priority = &q.Caps.Priority
		}
	}
	for _, c := range q.Constraints {
		out.Constraints = append(out.Constraints, ConstraintJSON{Attribute: c.Attribute, Operator: string(c.Operator), Value: c.Value})
	}
	for _, u := range x.Users {
		out.Users = append(out.Users, QueueUserJSON{User: u.User, HeldGPUs: float64(u.MilliGpus) / 1000})
	}
	return out, nil
}

// QueuesJSON gives the JSON form of queues.
func QueuesJSON(queues []*QueueInfo) ([]QueueJSON, error) {
	out := []QueueJSON{}
	for _, x := range queues {
		q, err := QueueJSONOf(x)
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}
