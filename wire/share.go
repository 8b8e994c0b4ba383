package wire

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

func commitPlanOf(c *state.CommitPlan) *CommitPlan {
	return &CommitPlan{
		Term:      c.Term,
		Gangs:     listOf(c.Gangs, gangPlacementOf),
		Unhold:    numbersOf[uint64](c.Unhold),
		Evictions: listOf(c.Evictions, evictionOf),
		Claims: listOf(c.Claims, func(c *state.QueueClaim) *QueueClaim {
			return &QueueClaim{Queue: c.Queue, Gpus: int64(c.GPUs)}
		}),
	}
}

func evictionOf(e *state.Eviction) *Eviction {
	return &Eviction{
		Job:     uint64(e.Job),
		Attempt: e.Attempt,
		Ranks:   listOf(e.Ranks, rankPlacementOf),
		Victims: listOf(e.Victims, func(v *state.Victim) *Victim {
			return &Victim{Job: uint64(v.Job), Attempt: v.Attempt, Reason: v.Reason}
		}),
	}
}

func (d *decoder) eviction(x *Eviction) state.Eviction {
	d.known("Eviction", x.unknownFields)
	return state.Eviction{
		Job:     muster.JobID(x.Job),
		Attempt: x.Attempt,
		Ranks:   domainList(d, "Eviction.ranks", x.Ranks, d.rankPlacement),
		Victims: domainList(d, "Eviction.victims", x.Victims, func(x *Victim) state.Victim {
			d.known("Victim", x.unknownFields)
			return state.Victim{Job: muster.JobID(x.Job), Attempt: x.Attempt, Reason: x.Reason}
		}),
	}
}

func (d *decoder) claim(x *QueueClaim) state.QueueClaim {
	d.known("QueueClaim", x.unknownFields)
	return state.QueueClaim{Queue: x.Queue, GPUs: d.count("QueueClaim.gpus", x.Gpus)}
}

func holdOf(h *state.HoldRow) *HoldRow {
	return &HoldRow{
		Job:     uint64(h.Job),
		Attempt: h.Attempt,
		Since:   int64(h.Since),
		Ranks:   listOf(h.Ranks, rankPlacementOf),
		Victims: numbersOf[uint64](h.Victims),
	}
}

func (d *decoder) hold(x *HoldRow) state.Row {
	d.known("HoldRow", x.unknownFields)
	return &state.HoldRow{
		Job:     muster.JobID(x.Job),
		Attempt: x.Attempt,
		Since:   d.time("HoldRow.since", x.Since),
		Ranks:   domainList(d, "HoldRow.ranks", x.Ranks, d.rankPlacement),
		Victims: numbersOf[muster.JobID](x.Victims),
	}
}

func usageOf(u *state.UsageRow) *UsageRow {
	return &UsageRow{
		Queue:      u.Queue,
		User:       u.User,
		MilliGpus:  u.MilliGPUs,
		MilliCores: int64(u.MilliCores),
		Memory:     int64(u.Memory),
		UsedGpus:   u.Used.GPUs,
		UsedCores:  u.Used.Cores,
		UsedMemory: u.Used.Memory,
		Since:      int64(u.Since),
	}
}

func (d *decoder) usage(x *UsageRow) state.Row {
	d.known("UsageRow", x.unknownFields)
	return &state.UsageRow{
		Queue:      x.Queue,
		User:       x.User,
		MilliGPUs:  d.amount("UsageRow.milli_gpus", x.MilliGpus),
		MilliCores: muster.MilliCores(d.amount("UsageRow.milli_cores", x.MilliCores)),
		Memory:     muster.Bytes(d.amount("UsageRow.memory", x.Memory)),
		Used: state.Used{
			GPUs:   d.amount("UsageRow.used_gpus", x.UsedGpus),
			Cores:  d.amount("UsageRow.used_cores", x.UsedCores),
			Memory: d.amount("UsageRow.used_memory", x.UsedMemory),
		},
		Since: d.time("UsageRow.since", x.Since),
	}
}

func historyOf(r *state.HistoryRow) *HistoryRow {
	return &HistoryRow{User: r.User, Stem: r.Stem, Gpus: int64(r.GPUs), Model: r.Model, Counts: r.Counts, At: int64(r.At)}
}

func (d *decoder) history(x *HistoryRow) state.Row {
	d.known("HistoryRow", x.unknownFields)
	if len(x.Counts) > state.HistoryBounds {
		d.fail("HistoryRow.counts has more than %d", state.HistoryBounds)
	}
	return &state.HistoryRow{User: x.User, Stem: x.Stem, GPUs: d.count("HistoryRow.gpus", x.Gpus), Model: x.Model,
		Counts: x.Counts, At: d.time("HistoryRow.at", x.At)}
}
