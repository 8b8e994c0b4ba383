package state

import "github.com/musterhpc/muster"

// The canonical encodings. Each begins with a letter of its own, so that rows of different tables never hash alike.

func (e *encoder) clusterHash(c *Cluster) uint64 {
	e.b = append(e.b[:0], 'C')
	e.str(c.ID)
	e.uint(uint64(c.Epoch))
	e.uint(uint64(c.Level))
	e.int(int64(c.Time))
	e.uint(uint64(c.NextJob))
	e.uint(c.NextAlloc)
	e.uint(uint64(c.NextNode))
	e.uint(uint64(c.NextShape))
	if c.Policy != nil {
		writePolicy(e, c.Policy)
	}
	if c.Preempted != 0 {
		e.later(1)
		e.int(int64(c.Preempted))
	}
	return hash64(e.b)
}

func writeJob(e *encoder, j *muster.Job) {
	e.b = append(e.b, 'J')
	e.uint(uint64(j.ID))
	e.fixed(j.Spec[:])
	e.uint(uint64(j.Shape))
	e.str(j.Name)
	e.str(j.User)
	e.str(j.Queue)
	e.int(int64(j.Priority))
	e.uint(uint64(j.Phase))
	e.int(int64(j.Submitted))
	e.int(int64(j.Started))
	e.int(int64(j.Finished))
	e.uint(uint64(j.Attempt))
	e.uint(uint64(j.Failures))
	e.uint(uint64(j.ClusterFailures))
	e.int(int64(j.Backoff))
	writeStop(e, &j.Stop)
	e.uint(uint64(j.Class))
	e.int(int64(j.ExitCode))
	e.str(j.Reason)
	e.uint(uint64(len(j.Attempts)))
	for i := range j.Attempts {
		a := &j.Attempts[i]
		e.uint(uint64(a.Number))
		e.int(int64(a.Placed))
		e.int(int64(a.Started))
		e.int(int64(a.Ended))
		e.int(int64(a.Live))
		e.int(int64(a.Unready))
		e.int(int64(a.Waiting))
		e.uint(uint64(a.Class))
		e.int(int64(a.ExitCode))
		e.str(a.Reason)
		e.alloc(a.Culprit)
	}
	if j.StartBy != 0 {
		e.later(1)
		e.int(int64(j.StartBy))
	}
}

func writeStop(e *encoder, s *muster.Stop) {
	e.uint(uint64(s.Mode))
	e.uint(uint64(s.Class))
	e.str(s.Reason)
	e.int(int64(s.At))
}

func writeAllocation(e *encoder, a *muster.Allocation) {
	e.b = append(e.b, 'A')
	e.alloc(a.ID)
	e.uint(uint64(a.Job))
	e.uint(uint64(a.Attempt))
	e.int(int64(a.Group))
	e.int(int64(a.Rank))
	e.uint(uint64(a.Node))
	e.uint(uint64(a.Slots))
	e.int(int64(a.MilliCores))
	e.int(int64(a.Memory))
	e.uint(uint64(a.Port))
	e.int(int64(a.Lease))
	e.uint(uint64(a.Phase))
	e.flag(a.Go)
	writeStop(e, &a.Stop)
	e.int(int64(a.Placed))
	e.uint(uint64(a.PlacedAt))
	e.int(int64(a.Running))
	e.int(int64(a.Ended))
	e.uint(uint64(a.Class))
	e.int(int64(a.ExitCode))
	e.int(int64(a.Signal))
	e.str(a.Message)
	e.int(int64(a.Peak))
	if a.Share != 0 {
		e.later(1)
		e.int(int64(a.Share))
	}
}

func writeNode(e *encoder, n *muster.Node) {
	e.b = append(e.b, 'N')
	e.uint(uint64(n.ID))
	e.str(n.Name)
	e.str(n.Address)
	e.str(n.IP)
	e.str(n.Hardware)
	e.str(n.Boot)
	e.str(n.Instance)
	e.str(n.Session)
	e.uint(uint64(n.Epoch))
	e.flag(n.Lost)
	e.str(n.Reason)
	e.flag(n.Drain.On)
	e.str(n.Drain.Reason)
	e.str(n.Drain.By)
	e.int(int64(n.Drain.Since))
	e.int(int64(n.Drain.Deadline))
	e.labels(n.Labels)
	e.int(int64(n.MilliCores))
	e.int(int64(n.Memory))
	e.uint(uint64(len(n.GPUs)))
	for i := range n.GPUs {
		g := &n.GPUs[i]
		e.str(g.UUID)
		e.str(g.Model)
		e.int(int64(g.Memory))
		e.str(g.BusID)
		e.uint(uint64(g.Health))
		e.str(g.Reason)
	}
	e.str(n.Fencing)
	e.str(n.Version)
	e.uint(uint64(n.PortLow))
	e.uint(uint64(n.PortHigh))
	e.int(n.Cost)
	e.uint(uint64(n.FreeSlots))
	e.int(int64(n.FreeMilliCores))
	e.int(int64(n.FreeMemory))
	e.int(int64(n.Allocs))
	e.uint(uint64(n.NextPort))
	if n.Removed {
		e.later(1)
	}
	if n.Number > 0 {
		e.later(39)
		e.uint(n.Number)
	}
	if len(n.SetLabels) > 0 {
		e.later(2)
		e.uint(uint64(len(n.SetLabels)))
		for i := range n.SetLabels {
			l := &n.SetLabels[i]
			e.str(l.Key)
			e.str(l.Value)
			e.flag(l.HasOwn)
			e.str(l.Own)
		}
	}
	if len(n.Shared) > 0 {
		e.later(3)
		e.uint(uint64(len(n.Shared)))
		for _, s := range n.Shared {
			e.uint(uint64(s.Slot))
			e.int(int64(s.Held))
		}
	}
}

func writeQueue(e *encoder, q *muster.Queue) {
	e.b = append(e.b, 'Q')
	e.str(q.Name)
	e.int(int64(q.Pending))
	e.int(int64(q.Running))
	e.int(int64(q.GPUs))
	if q.Spec != nil {
		writeQueueSpec(e, q.Spec)
	}
	if q.Claim != 0 || q.Owed != 0 || q.OwedAt != 0 {
		e.later(1)
		e.int(int64(q.Claim))
		e.int(q.Owed)
		e.int(int64(q.OwedAt))
	}
	if q.Shares != 0 {
		e.later(2)
		e.int(int64(q.Shares))
	}
}

func writeQueueSpec(e *encoder, q *muster.QueueSpec) {
	e.str(q.Name)
	e.int(int64(q.Weight))
	e.strs(q.Allow)
	e.uint(uint64(len(q.Quota)))
	for i := range q.Quota {
		e.str(q.Quota[i].Model)
		e.int(int64(q.Quota[i].GPUs))
	}
	e.int(int64(q.MaxGPUs))
	e.int(int64(q.UserGPUs))
	e.int(int64(q.MaxRunning))
	e.int(int64(q.MaxPending))
	e.int(int64(q.Defaults.TimeLimit))
	e.flag(q.Defaults.HasPriority)
	e.int(int64(q.Defaults.Priority))
	e.int(int64(q.Caps.TimeLimit))
	e.flag(q.Caps.HasPriority)
	e.int(int64(q.Caps.Priority))
	e.int(int64(q.Caps.StopAfter))
	e.int(int64(q.MinRuntime))
	e.int(int64(q.Charge))
	writeConstraints(e, q.Constraints)
	e.str(q.Budget.Period)
	e.int(q.Budget.GPUHours)
	e.int(int64(q.Idle.After))
	e.int(int64(q.Idle.Below))
	e.flag(q.Idle.Cancel)
}

func writePolicy(e *encoder, p *muster.Policy) {
	e.flag(p.FairShare)
	e.str(string(p.Order))
	e.int(int64(p.Reservations))
	e.int(int64(p.MaxPreemptions))
	e.str(string(p.Backfill))
	e.str(string(p.Preemption))
	e.int(int64(p.HalfLife))
	e.str(string(p.Objective))
	e.int(int64(p.Round))
	e.int(int64(p.WideGPUs))
	e.int(int64(p.WideAfter))
}

// writeSpecRow leaves the spec out: its id is a hash of it, which CheckInvariants compares.
func writeSpecRow(e *encoder, r *SpecRow) {
	e.b = append(e.b, 'S')
	e.fixed(r.ID[:])
	e.int(int64(r.Jobs))
}

func writeShapeRow(e *encoder, r *ShapeRow) {
	e.b = append(e.b, 'H')
	e.uint(uint64(r.ID))
	e.int(int64(r.Jobs))
	writeShape(e, r.Shape)
}

func writeRequest(e *encoder, r *RequestRow) {
	e.b = append(e.b, 'R')
	e.str(r.ID)
	e.fixed(r.Content[:])
	e.int(int64(r.Expires))
	writeResult(e, &r.Result)
}

func writeResult(e *encoder, r *Result) {
	e.flag(r.Err != nil)
	if r.Err != nil {
		e.str(string(r.Err.Kind))
		e.str(r.Err.Message)
		e.str(r.Err.Hint)
		e.str(r.Err.Field)
	}
	e.uint(uint64(len(r.Jobs)))
	for _, id := range r.Jobs {
		e.uint(uint64(id))
	}
	e.strs(r.Notes)
	e.uint(uint64(r.Node))
	e.uint(uint64(len(r.Kill)))
	for _, id := range r.Kill {
		e.alloc(id)
	}
	e.uint(uint64(len(r.Refused)))
	for i := range r.Refused {
		e.uint(uint64(r.Refused[i].Job))
		e.str(r.Refused[i].Reason)
	}
	e.flag(r.Replay)
}

func writeSpec(e *encoder, s *muster.JobSpec) {
	e.str(s.Name)
	e.str(s.Queue)
	e.uint(uint64(s.Type))
	e.int(int64(s.Priority))
	e.int(int64(s.TimeLimit))
	e.labels(s.Labels)
	if s.PriorityOfQueue {
		e.later(1)
	}
	e.uint(uint64(len(s.Groups)))
	for i := range s.Groups {
		g := &s.Groups[i]
		e.str(g.Name)
		e.int(int64(g.Count))
		e.str(g.Within)
		writeConstraints(e, g.Constraints)
		writeRetry(e, &g.Retry)
		e.int(int64(g.Checkpoint.Grace))
		e.str(g.Checkpoint.Signal)
		e.uint(uint64(g.Checkpoint.To))
		e.int(int64(g.Disconnect.StopAfter))
		e.uint(uint64(g.Disconnect.Replace))
		writeTask(e, &g.Task)
		writeWishes(e, g)
	}
}

// writeWishes writes what groups did not have in the first release.
func writeWishes(e *encoder, g *muster.Group) {
	if g.Prefer != "" {
		e.later(1)
		e.str(g.Prefer)
	}
	if g.Patience != 0 {
		e.later(2)
		e.int(int64(g.Patience))
	}
	if g.MixedModels {
		e.later(3)
	}
	if g.OnlyQuota {
		e.later(4)
	}
	if len(g.Affinities) > 0 {
		e.later(5)
		e.uint(uint64(len(g.Affinities)))
		for i := range g.Affinities {
			e.str(g.Affinities[i].Attribute)
			e.str(g.Affinities[i].Value)
			e.int(int64(g.Affinities[i].Weight))
		}
	}
	if len(g.Spreads) > 0 {
		e.later(6)
		e.uint(uint64(len(g.Spreads)))
		for i := range g.Spreads {
			e.str(g.Spreads[i].Attribute)
		}
	}
	if g.Checkpoint.Every != 0 {
		e.later(7)
		e.int(int64(g.Checkpoint.Every))
	}
}

func writeRetry(e *encoder, r *muster.Retry) {
	e.int(int64(r.Attempts))
	e.uint(uint64(len(r.On)))
	for _, class := range r.On {
		e.uint(uint64(class))
	}
	e.ints(r.ExitCodes)
	e.int(int64(r.Delay))
	e.int(int64(r.MaxDelay))
}

func writeTask(e *encoder, t *muster.Task) {
	e.str(t.Name)
	e.str(t.Script)
	e.str(t.Command)
	e.strs(t.Args)
	e.str(t.Dir)
	e.uint(uint64(len(t.Env)))
	for i := range t.Env {
		e.str(t.Env[i].Name)
		e.str(t.Env[i].Value)
	}
	e.str(t.KillSignal)
	e.int(int64(t.KillTimeout))
	e.ints(t.SuccessCodes)
	e.int(int64(t.Logs.MaxSize))
	e.int(int64(t.Logs.MaxFiles))
	writeResources(e, &t.Resources)
	if t.Start != muster.StartEach {
		e.later(1)
		e.uint(uint64(t.Start))
	}
	if len(t.EnvFromFile) > 0 {
		e.later(2)
		e.strs(t.EnvFromFile)
	}
	if len(t.Upload) > 0 {
		e.later(3)
		e.strs(t.Upload)
	}
	if t.Logs.Path != "" {
		e.later(4)
		e.str(t.Logs.Path)
	}
}

func writeShape(e *encoder, s *muster.Shape) {
	e.uint(uint64(len(s.Groups)))
	for i := range s.Groups {
		g := &s.Groups[i]
		e.int(int64(g.Count))
		e.str(g.Within)
		writeConstraints(e, g.Constraints)
		writeResources(e, &g.Resources)
		if g.Prefer != "" {
			e.later(1)
			e.str(g.Prefer)
			e.int(int64(g.Patience))
		}
	}
}

func writeConstraints(e *encoder, list []muster.Constraint) {
	e.uint(uint64(len(list)))
	for i := range list {
		e.str(list[i].Attribute)
		e.str(string(list[i].Operator))
		e.str(list[i].Value)
	}
}

func writeResources(e *encoder, r *muster.Resources) {
	e.int(int64(r.GPUs))
	e.int(int64(r.MilliCores))
	e.int(int64(r.Memory))
	e.flag(r.Exclusive)
	e.strs(r.Models)
	e.int(int64(r.MinMemory))
	if r.Share != 0 {
		e.later(1)
		e.int(int64(r.Share))
	}
	if r.MIG != "" {
		e.later(2)
		e.str(r.MIG)
	}
	if r.Disk != 0 {
		e.later(3)
		e.int(int64(r.Disk))
	}
}

func writeHold(e *encoder, h *HoldRow) {
	e.b = append(e.b, 'O')
	e.uint(uint64(h.Job))
	e.uint(uint64(h.Attempt))
	e.int(int64(h.Since))
	e.uint(uint64(len(h.Ranks)))
	for i := range h.Ranks {
		r := &h.Ranks[i]
		e.int(int64(r.Group))
		e.int(int64(r.Rank))
		e.uint(uint64(r.Node))
		e.uint(uint64(r.Slots))
		e.int(int64(r.MilliCores))
		e.int(int64(r.Memory))
		if r.Share != 0 {
			e.later(1)
			e.int(int64(r.Share))
		}
	}
	e.uint(uint64(len(h.Victims)))
	for _, id := range h.Victims {
		e.uint(uint64(id))
	}
}

func writeUsage(e *encoder, u *UsageRow) {
	e.b = append(e.b, 'U')
	e.str(u.Queue)
	e.str(u.User)
	e.int(u.MilliGPUs)
	e.int(int64(u.MilliCores))
	e.int(int64(u.Memory))
	e.int(u.Used.GPUs)
	e.int(u.Used.Cores)
	e.int(u.Used.Memory)
	e.int(int64(u.Since))
}

func writeHistory(e *encoder, r *HistoryRow) {
	e.b = append(e.b, 'Y')
	e.str(r.User)
	e.str(r.Stem)
	e.int(int64(r.GPUs))
	e.str(r.Model)
	e.uint(uint64(len(r.Counts)))
	for _, n := range r.Counts {
		e.uint(uint64(n))
	}
	e.int(int64(r.At))
}

func (e *encoder) ints(list []int) {
	e.uint(uint64(len(list)))
	for _, v := range list {
		e.int(int64(v))
	}
}

// specID is the content hash by which a spec is interned.
func (e *encoder) specID(s *muster.JobSpec) muster.SpecID {
	return muster.SpecID(e.content(func(e *encoder) { writeSpec(e, s) }))
}

func (e *encoder) shapeKey(s *muster.Shape) [16]byte {
	return e.content(func(e *encoder) { writeShape(e, s) })
}
