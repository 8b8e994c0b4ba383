package wire

import "github.com/musterhpc/muster"

// JobSpecOf converts a spec.
func JobSpecOf(s *muster.JobSpec) *JobSpec {
	return &JobSpec{
		Name:      s.Name,
		Queue:     s.Queue,
		Type:      uint32(s.Type),
		Priority:  int64(s.Priority),
		TimeLimit: int64(s.TimeLimit),
		Labels:    labelsOf(s.Labels),
		Groups:    listOf(s.Groups, groupOf),

		PriorityOfQueue: s.PriorityOfQueue,
	}
}

// Domain converts back.
func (x *JobSpec) Domain() (*muster.JobSpec, error) {
	var d decoder
	s := d.jobSpec(x)
	return s, d.err
}

func (d *decoder) jobSpec(x *JobSpec) *muster.JobSpec {
	if !d.present("JobSpec", x == nil) {
		return nil
	}
	d.known("JobSpec", x.unknownFields)
	return &muster.JobSpec{
		Name:      x.Name,
		Queue:     x.Queue,
		Type:      enum(d, "JobSpec.type", x.Type, muster.Batch),
		Priority:  d.number("JobSpec.priority", x.Priority),
		TimeLimit: d.duration("JobSpec.time_limit", x.TimeLimit),
		Labels:    d.labels(x.Labels),
		Groups:    domainList(d, "JobSpec.groups", x.Groups, d.group),

		PriorityOfQueue: x.PriorityOfQueue,
	}
}

func labelsOf(labels []muster.Label) []*Label {
	return listOf(labels, func(l *muster.Label) *Label { return &Label{Key: l.Key, Value: l.Value} })
}

func (d *decoder) labels(list []*Label) []muster.Label {
	return domainList(d, "Label", list, func(x *Label) muster.Label {
		d.known("Label", x.unknownFields)
		return muster.Label{Key: x.Key, Value: x.Value}
	})
}

func groupOf(g *muster.Group) *Group {
	return &Group{
		Name:        g.Name,
		Count:       int64(g.Count),
		Within:      g.Within,
		Constraints: constraintsOf(g.Constraints),
		Retry: &Retry{
			Attempts:  int64(g.Retry.Attempts),
			On:        numbersOf[uint32](g.Retry.On),
			ExitCodes: numbersOf[int64](g.Retry.ExitCodes),
			Delay:     int64(g.Retry.Delay),
			MaxDelay:  int64(g.Retry.MaxDelay),
		},
		Checkpoint: checkpointOf(&g.Checkpoint),
		Disconnect: &Disconnect{StopAfter: int64(g.Disconnect.StopAfter), Replace: uint32(g.Disconnect.Replace)},
		Task:       taskOf(&g.Task),

		Prefer:      g.Prefer,
		Patience:    int64(g.Patience),
		MixedModels: g.MixedModels,
		OnlyQuota:   g.OnlyQuota,
		Affinities: listOf(g.Affinities, func(a *muster.Affinity) *Affinity {
			return &Affinity{Attribute: a.Attribute, Value: a.Value, Weight: int64(a.Weight)}
		}),
		Spreads: listOf(g.Spreads, func(s *muster.Spread) *Spread { return &Spread{Attribute: s.Attribute} }),
	}
}

func (d *decoder) group(x *Group) muster.Group {
	d.known("Group", x.unknownFields)
	g := muster.Group{
		Name:        x.Name,
		Count:       d.count("Group.count", x.Count),
		Within:      x.Within,
		Constraints: d.constraints(x.Constraints),
		Checkpoint:  d.checkpoint(x.Checkpoint),
		Prefer:      x.Prefer,
		Patience:    d.duration("Group.patience", x.Patience),
		MixedModels: x.MixedModels,
		OnlyQuota:   x.OnlyQuota,
		Affinities: domainList(d, "Affinity", x.Affinities, func(x *Affinity) muster.Affinity {
			d.known("Affinity", x.unknownFields)
			return muster.Affinity{Attribute: x.Attribute, Value: x.Value, Weight: d.number("Affinity.weight", x.Weight)}
		}),
		Spreads: domainList(d, "Spread", x.Spreads, func(x *Spread) muster.Spread {
			d.known("Spread", x.unknownFields)
			return muster.Spread{Attribute: x.Attribute}
		}),
	}
	if r := x.Retry; d.present("Group.retry", r == nil) {
		d.known("Retry", r.unknownFields)
		g.Retry = muster.Retry{
			Attempts:  d.count("Retry.attempts", r.Attempts),
			ExitCodes: d.numbers("Retry.exit_codes", r.ExitCodes),
			Delay:     d.duration("Retry.delay", r.Delay),
			MaxDelay:  d.duration("Retry.max_delay", r.MaxDelay),
		}
		for _, on := range r.On {
			g.Retry.On = append(g.Retry.On, enum(d, "Retry.on", on, muster.ClassCollateral))
		}
	}
	if c := x.Disconnect; d.present("Group.disconnect", c == nil) {
		d.known("Disconnect", c.unknownFields)
		g.Disconnect = muster.Disconnect{
			StopAfter: d.duration("Disconnect.stop_after", c.StopAfter),
			Replace:   enum(d, "Disconnect.replace", c.Replace, muster.ReplaceImmediately),
		}
	}
	if d.present("Group.task", x.Task == nil) {
		g.Task = d.task(x.Task)
	}
	return g
}

// checkpointOf gives nil for a group that asks for nothing: most do.
func checkpointOf(c *muster.Checkpoint) *Checkpoint {
	if *c == (muster.Checkpoint{}) {
		return nil
	}
	return &Checkpoint{Grace: int64(c.Grace), Signal: c.Signal, To: uint32(c.To), Every: int64(c.Every)}
}

func (d *decoder) checkpoint(x *Checkpoint) muster.Checkpoint {
	if x == nil {
		return muster.Checkpoint{}
	}
	d.known("Checkpoint", x.unknownFields)
	return muster.Checkpoint{
		Grace:  d.duration("Checkpoint.grace", x.Grace),
		Signal: x.Signal,
		To:     enum(d, "Checkpoint.to", x.To, muster.ToAll),
		Every:  d.duration("Checkpoint.every", x.Every),
	}
}

func constraintsOf(list []muster.Constraint) []*Constraint {
	return listOf(list, func(c *muster.Constraint) *Constraint {
		return &Constraint{Attribute: c.Attribute, Operator: string(c.Operator), Value: c.Value}
	})
}

func (d *decoder) constraints(list []*Constraint) []muster.Constraint {
	return domainList(d, "Constraint", list, func(x *Constraint) muster.Constraint {
		d.known("Constraint", x.unknownFields)
		return muster.Constraint{Attribute: x.Attribute, Operator: muster.Operator(x.Operator), Value: x.Value}
	})
}

func taskOf(t *muster.Task) *Task {
	return &Task{
		Name:         t.Name,
		Script:       t.Script,
		Command:      t.Command,
		Args:         t.Args,
		Start:        uint32(t.Start),
		Dir:          t.Dir,
		Env:          listOf(t.Env, func(e *muster.EnvVar) *Label { return &Label{Key: e.Name, Value: e.Value} }),
		EnvFromFile:  t.EnvFromFile,
		Upload:       t.Upload,
		KillSignal:   t.KillSignal,
		KillTimeout:  int64(t.KillTimeout),
		SuccessCodes: numbersOf[int64](t.SuccessCodes),
		Logs:         LogsOf(t.Logs),
		Resources:    resourcesOf(&t.Resources),
	}
}

func (d *decoder) task(x *Task) muster.Task {
	d.known("Task", x.unknownFields)
	t := muster.Task{
		Name:    x.Name,
		Script:  x.Script,
		Command: x.Command,
		Args:    x.Args,
		Start:   enum(d, "Task.start", x.Start, muster.StartFirst),
		Dir:     x.Dir,
		Env: domainList(d, "Task.env", x.Env, func(e *Label) muster.EnvVar {
			d.known("Label", e.unknownFields)
			return muster.EnvVar{Name: e.Key, Value: e.Value}
		}),
		EnvFromFile:  x.EnvFromFile,
		Upload:       x.Upload,
		KillSignal:   x.KillSignal,
		KillTimeout:  d.duration("Task.kill_timeout", x.KillTimeout),
		SuccessCodes: d.numbers("Task.success_codes", x.SuccessCodes),
		Resources:    d.resources(x.Resources),
	}
	if d.present("Task.logs", x.Logs == nil) {
		t.Logs = d.logs(x.Logs)
	}
	return t
}

// LogsOf converts the bounds of a task's output.
func LogsOf(l muster.Logs) *Logs {
	return &Logs{MaxSize: int64(l.MaxSize), MaxFiles: int64(l.MaxFiles), Path: l.Path}
}

func (d *decoder) logs(x *Logs) muster.Logs {
	d.known("Logs", x.unknownFields)
	return muster.Logs{
		MaxSize:  muster.Bytes(d.amount("Logs.max_size", x.MaxSize)),
		MaxFiles: d.count("Logs.max_files", x.MaxFiles),
		Path:     x.Path,
	}
}

func resourcesOf(r *muster.Resources) *Resources {
	return &Resources{
		Gpus:       int64(r.GPUs),
		MilliCores: int64(r.MilliCores),
		Memory:     int64(r.Memory),
		Exclusive:  r.Exclusive,
		Models:     r.Models,
		MinMemory:  int64(r.MinMemory),
		Share:      int64(r.Share),
		Mig:        r.MIG,
		Disk:       int64(r.Disk),
	}
}

func (d *decoder) resources(x *Resources) muster.Resources {
	if !d.present("Resources", x == nil) {
		return muster.Resources{}
	}
	d.known("Resources", x.unknownFields)
	return muster.Resources{
		GPUs:       d.count("Resources.gpus", x.Gpus),
		MilliCores: muster.MilliCores(d.amount("Resources.milli_cores", x.MilliCores)),
		Memory:     muster.Bytes(d.amount("Resources.memory", x.Memory)),
		Exclusive:  x.Exclusive,
		Models:     x.Models,
		MinMemory:  muster.Bytes(d.amount("Resources.min_memory", x.MinMemory)),
		Share:      muster.MilliGPUs(d.amount("Resources.share", x.Share)),
		MIG:        x.Mig,
		Disk:       muster.Bytes(d.amount("Resources.disk", x.Disk)),
	}
}

func shapeOf(s *muster.Shape) *Shape {
	return &Shape{Groups: listOf(s.Groups, func(g *muster.ShapeGroup) *ShapeGroup {
		return &ShapeGroup{
			Count:       int64(g.Count),
			Within:      g.Within,
			Prefer:      g.Prefer,
			Patience:    int64(g.Patience),
			Constraints: constraintsOf(g.Constraints),
			Resources:   resourcesOf(&g.Resources),
		}
	})}
}

func (d *decoder) shape(x *Shape) *muster.Shape {
	if !d.present("Shape", x == nil) {
		return nil
	}
	d.known("Shape", x.unknownFields)
	return &muster.Shape{Groups: domainList(d, "Shape.groups", x.Groups, func(g *ShapeGroup) muster.ShapeGroup {
		d.known("ShapeGroup", g.unknownFields)
		return muster.ShapeGroup{
			Count:       d.count("ShapeGroup.count", g.Count),
			Within:      g.Within,
			Prefer:      g.Prefer,
			Patience:    d.duration("ShapeGroup.patience", g.Patience),
			Constraints: d.constraints(g.Constraints),
			Resources:   d.resources(g.Resources),
		}
	})}
}
