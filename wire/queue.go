package wire

import (
	"slices"

	"github.com/musterhpc/muster"
)

func queueOf(q *muster.Queue) *Queue {
	x := &Queue{Name: q.Name, Pending: int64(q.Pending), Running: int64(q.Running), Gpus: int64(q.GPUs),
		Claim: int64(q.Claim), Owed: q.Owed, OwedAt: int64(q.OwedAt), Shares: int64(q.Shares)}
	if q.Spec != nil {
		x.Spec = QueueSpecOf(q.Spec)
	}
	return x
}

func (d *decoder) queue(x *Queue) *muster.Queue {
	if !d.present("Queue", x == nil) {
		return nil
	}
	d.known("Queue", x.unknownFields)
	q := &muster.Queue{
		Name:    x.Name,
		Pending: d.count("Queue.pending", x.Pending),
		Running: d.count("Queue.running", x.Running),
		GPUs:    d.count("Queue.gpus", x.Gpus),
		Claim:   d.count("Queue.claim", x.Claim),
		Owed:    x.Owed,
		OwedAt:  d.time("Queue.owed_at", x.OwedAt),
		Shares:  muster.MilliGPUs(d.amount("Queue.shares", x.Shares)),
	}
	if x.Spec != nil {
		spec := d.queueSpec(x.Spec)
		q.Spec = &spec
	}
	return q
}

// QueueSpecOf converts what a queues file says of a queue.
func QueueSpecOf(q *muster.QueueSpec) *QueueSpec {
	return &QueueSpec{
		Name:       q.Name,
		Weight:     int64(q.Weight),
		Allow:      q.Allow,
		Quota:      listOf(q.Quota, func(q *muster.Quota) *Quota { return &Quota{Model: q.Model, Gpus: int64(q.GPUs)} }),
		MaxGpus:    int64(q.MaxGPUs),
		UserGpus:   int64(q.UserGPUs),
		MaxRunning: int64(q.MaxRunning),
		MaxPending: int64(q.MaxPending),
		Defaults: &QueueDefaults{
			TimeLimit:   int64(q.Defaults.TimeLimit),
			HasPriority: q.Defaults.HasPriority,
			Priority:    int64(q.Defaults.Priority),
		},
		Caps: &QueueCaps{
			TimeLimit:   int64(q.Caps.TimeLimit),
			HasPriority: q.Caps.HasPriority,
			Priority:    int64(q.Caps.Priority),
			StopAfter:   int64(q.Caps.StopAfter),
		},
		MinRuntime:  int64(q.MinRuntime),
		Charge:      int64(q.Charge),
		Constraints: constraintsOf(q.Constraints),
		Budget:      &Budget{Period: q.Budget.Period, GpuHours: q.Budget.GPUHours},
		Idle:        &IdleRule{After: int64(q.Idle.After), Below: int64(q.Idle.Below), Cancel: q.Idle.Cancel},
	}
}

// Domain converts back.
func (x *QueueSpec) Domain() (muster.QueueSpec, error) {
	var d decoder
	q := d.queueSpec(x)
	return q, d.err
}

func (d *decoder) queueSpec(x *QueueSpec) muster.QueueSpec {
	if !d.present("QueueSpec", x == nil) {
		return muster.QueueSpec{}
	}
	d.known("QueueSpec", x.unknownFields)
	q := muster.QueueSpec{
		Name:   x.Name,
		Weight: muster.Milli(d.amount("QueueSpec.weight", x.Weight)),
		Allow:  x.Allow,
		Quota: domainList(d, "QueueSpec.quota", x.Quota, func(x *Quota) muster.Quota {
			d.known("Quota", x.unknownFields)
			return muster.Quota{Model: x.Model, GPUs: d.count("Quota.gpus", x.Gpus)}
		}),
		MaxGPUs:     d.count("QueueSpec.max_gpus", x.MaxGpus),
		UserGPUs:    d.count("QueueSpec.user_gpus", x.UserGpus),
		MaxRunning:  d.count("QueueSpec.max_running", x.MaxRunning),
		MaxPending:  d.count("QueueSpec.max_pending", x.MaxPending),
		MinRuntime:  d.duration("QueueSpec.min_runtime", x.MinRuntime),
		Charge:      muster.Milli(d.amount("QueueSpec.charge", x.Charge)),
		Constraints: d.constraints(x.Constraints),
	}
	if d.present("QueueSpec.defaults", x.Defaults == nil) {
		d.known("QueueDefaults", x.Defaults.unknownFields)
		q.Defaults = muster.QueueDefaults{
			TimeLimit:   d.duration("QueueDefaults.time_limit", x.Defaults.TimeLimit),
			HasPriority: x.Defaults.HasPriority,
			Priority:    d.number("QueueDefaults.priority", x.Defaults.Priority),
		}
	}
	if d.present("QueueSpec.caps", x.Caps == nil) {
		d.known("QueueCaps", x.Caps.unknownFields)
		q.Caps = muster.QueueCaps{
			TimeLimit:   d.duration("QueueCaps.time_limit", x.Caps.TimeLimit),
			HasPriority: x.Caps.HasPriority,
			Priority:    d.number("QueueCaps.priority", x.Caps.Priority),
			StopAfter:   d.duration("QueueCaps.stop_after", x.Caps.StopAfter),
		}
	}
	if d.present("QueueSpec.budget", x.Budget == nil) {
		d.known("Budget", x.Budget.unknownFields)
		q.Budget = muster.Budget{Period: x.Budget.Period, GPUHours: d.amount("Budget.gpu_hours", x.Budget.GpuHours)}
	}
	if d.present("QueueSpec.idle", x.Idle == nil) {
		d.known("IdleRule", x.Idle.unknownFields)
		q.Idle = muster.IdleRule{
			After:  d.duration("IdleRule.after", x.Idle.After),
			Below:  d.count("IdleRule.below", x.Idle.Below),
			Cancel: x.Idle.Cancel,
		}
	}
	return q
}

// PolicyOf converts how the cluster schedules.
func PolicyOf(p *muster.Policy) *Policy {
	return &Policy{
		FairShare:      p.FairShare,
		Order:          string(p.Order),
		Reservations:   int64(p.Reservations),
		MaxPreemptions: int64(p.MaxPreemptions),
		Backfill:       string(p.Backfill),
		Preemption:     string(p.Preemption),
		HalfLife:       int64(p.HalfLife),
		Objective:      string(p.Objective),
		Round:          int64(p.Round),
		WideGpus:       int64(p.WideGPUs),
		WideAfter:      int64(p.WideAfter),
	}
}

// Domain converts back.
func (x *Policy) Domain() (muster.Policy, error) {
	var d decoder
	p := d.policy(x)
	return p, d.err
}

func (d *decoder) policy(x *Policy) muster.Policy {
	if !d.present("Policy", x == nil) {
		return muster.Policy{}
	}
	d.known("Policy", x.unknownFields)
	return muster.Policy{
		FairShare:      x.FairShare,
		Order:          word(d, "Policy.order", x.Order, muster.Orders),
		Reservations:   d.count("Policy.reservations", x.Reservations),
		MaxPreemptions: d.count("Policy.max_preemptions", x.MaxPreemptions),
		Backfill:       word(d, "Policy.backfill", x.Backfill, muster.Backfills),
		Preemption:     word(d, "Policy.preemption", x.Preemption, muster.Preemptions),
		HalfLife:       d.duration("Policy.half_life", x.HalfLife),
		Objective:      word(d, "Policy.objective", x.Objective, muster.Objectives),
		Round:          d.duration("Policy.round", x.Round),
		WideGPUs:       d.count("Policy.wide_gpus", x.WideGpus),
		WideAfter:      d.duration("Policy.wide_after", x.WideAfter),
	}
}

// A cluster has no policy until a queues file says one.
func policyRowOf(p *muster.Policy) *Policy {
	if p == nil {
		return nil
	}
	return PolicyOf(p)
}

func (d *decoder) policyRow(x *Policy) *muster.Policy {
	if x == nil {
		return nil
	}
	p := d.policy(x)
	return &p
}

// word reads one of the words of a choice.
func word[T ~string](d *decoder, field, v string, known []T) T {
	if !slices.Contains(known, T(v)) {
		d.fail("%s has a value that isn't known: %q; this server is older than what wrote it", field, v)
		return ""
	}
	return T(v)
}
