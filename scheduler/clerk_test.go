package scheduler

import (
	"github.com/musterhpc/muster"
)

// dumb is a node as a careful clerk would keep it.
type dumb struct {
	row    *muster.Node
	left   [muster.MaxSlots]muster.MilliGPUs // of each slot
	cores  muster.MilliCores
	memory muster.Bytes
	allocs int
}

func (l *life) clerk(signals Signals) map[muster.NodeID]*dumb {
	nodes := map[muster.NodeID]*dumb{}
	for n := range l.snap.Nodes() {
		if _, suspect := signals.Suspect[n.ID]; suspect || n.State() != muster.NodeReady || n.Epoch != l.snap.Cluster().Epoch {
			continue
		}
		d := &dumb{row: n, cores: n.MilliCores, memory: n.Memory}
		for _, slot := range n.UsableSlots().Slots() {
			d.left[slot] = muster.WholeGPU
		}
		for a := range l.snap.AllocsOnNode(n.ID) {
			d.take(a.Slots, a.Share)
			d.cores, d.memory, d.allocs = d.cores-a.MilliCores, d.memory-a.Memory, d.allocs+1
		}
		nodes[n.ID] = d
	}
	return nodes
}

// take takes all of some slots, or a share of one. What is not usable has nothing left.
func (d *dumb) take(slots muster.SlotSet, share muster.MilliGPUs) {
	for _, slot := range slots.Slots() {
		if share == 0 {
			d.left[slot] = 0
		} else {
			d.left[slot] = max(0, d.left[slot]-share)
		}
	}
}

// has says whether all of some slots is left, or a share of one.
func (d *dumb) has(slots muster.SlotSet, share muster.MilliGPUs) bool {
	for _, slot := range slots.Slots() {
		if share == 0 && d.left[slot] < muster.WholeGPU || d.left[slot] < share {
			return false
		}
	}
	return true
}

// gives hands out one rank of a group with the given model, if there is room.
func (d *dumb) gives(g *muster.Group, model string) bool {
	r := &g.Task.Resources
	for i := range g.Constraints {
		if !g.Constraints[i].Holds(d.row) {
			return false
		}
	}
	if _, ok := d.row.Label(g.Within); !ok && g.Within != "" && g.Within != "node" {
		return false
	}
	var own muster.SlotSet
	for slot := range d.row.GPUs {
		gpu := &d.row.GPUs[slot]
		if own.Count() < r.GPUs && d.has(muster.SlotSet(0).With(slot), r.Share) && r.FitsGPU(gpu) && gpu.Model == model {
			own = own.With(slot)
		}
	}
	cores, memory := d.row.Share(r)
	if own.Count() < r.GPUs || cores > d.cores || memory > d.memory || r.Exclusive && d.allocs > 0 {
		return false
	}
	d.take(own, r.Share)
	d.cores, d.memory, d.allocs = d.cores-cores, d.memory-memory, d.allocs+1
	return true
}

// legal follows a plan gang by gang and rank by rank.
func (l *life) legal(plan Plan, signals Signals) {
	nodes := l.clerk(signals)
	seen := map[muster.JobID]bool{}
	for _, gang := range plan.Gangs {
		job, _ := l.snap.Job(gang.Job)
		spec := l.snap.Spec(job.Spec)
		if seen[gang.Job] || len(gang.Ranks) != spec.Ranks() || gang.Attempt != job.Attempt+1 {
			l.t.Fatalf("job %d: not whole, or twice: %+v", gang.Job, gang)
		}
		seen[gang.Job] = true
		at, model := 0, ""
		for group := range spec.Groups {
			g := &spec.Groups[group]
			place := ""
			for rank := range g.Count {
				r := gang.Ranks[at]
				at++
				d := nodes[r.Node]
				if d == nil || r.Group != group || r.Rank != rank || r.Slots.Count() != g.Task.Resources.GPUs ||
					r.Share != g.Task.Resources.Share || !d.has(r.Slots, r.Share) {
					l.t.Fatalf("job %d: rank %d/%d may not be as %+v", gang.Job, group, rank, r)
				}
				for _, slot := range r.Slots.Slots() {
					if model == "" {
						model = d.row.GPUs[slot].Model
					}
					if model != d.row.GPUs[slot].Model {
						l.t.Fatalf("job %d has two models", gang.Job)
					}
				}
				only := dumb{row: d.row, cores: d.cores, memory: d.memory, allocs: d.allocs}
				for _, slot := range r.Slots.Slots() {
					only.left[slot] = d.left[slot]
				}
				if !only.gives(g, model) || r.MilliCores != d.cores-only.cores || r.Memory != d.memory-only.memory {
					l.t.Fatalf("job %d: rank %d/%d: %+v does not fit", gang.Job, group, rank, r)
				}
				d.take(r.Slots, r.Share)
				d.cores, d.memory, d.allocs = only.cores, only.memory, only.allocs
				here := place
				switch g.Within {
				case "node":
					here = d.row.Name
				case "rack":
					here, _ = d.row.Label("rack")
				}
				if rank > 0 && here != place {
					l.t.Fatalf("job %d: group %d is in %s and %s", gang.Job, group, place, here)
				}
				place = here
			}
		}
	}
}
