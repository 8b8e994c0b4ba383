package wire

import (
	"strings"

	"github.com/musterhpc/muster"
)

// AllocIDOf converts an allocation number.
func AllocIDOf(id muster.AllocID) *AllocID {
	return &AllocID{Epoch: uint32(id.Epoch), Counter: id.Counter}
}

// Domain converts back; nil is the zero number.
func (x *AllocID) Domain() (muster.AllocID, error) {
	var d decoder
	id := d.allocID(x)
	return id, d.err
}

func (d *decoder) allocID(x *AllocID) muster.AllocID {
	if x == nil {
		return muster.AllocID{}
	}
	d.known("AllocID", x.unknownFields)
	return muster.AllocID{Epoch: muster.Epoch(x.Epoch), Counter: x.Counter}
}

// AllocIDsOf converts a list of allocation numbers.
func AllocIDsOf(ids []muster.AllocID) []*AllocID {
	return listOf(ids, func(id *muster.AllocID) *AllocID { return AllocIDOf(*id) })
}

// AllocIDs converts a list back.
func AllocIDs(list []*AllocID) ([]muster.AllocID, error) {
	var d decoder
	ids := domainList(&d, "AllocID", list, d.allocID)
	return ids, d.err
}

// VersionOf converts a version.
func VersionOf(v muster.Version) *Version {
	return &Version{Epoch: uint32(v.Epoch), Index: uint64(v.Index)}
}

// Domain converts back; nil is the zero version.
func (x *Version) Domain() (muster.Version, error) {
	var d decoder
	v := d.version(x)
	return v, d.err
}

func (d *decoder) version(x *Version) muster.Version {
	if x == nil {
		return muster.Version{}
	}
	d.known("Version", x.unknownFields)
	return muster.Version{Epoch: muster.Epoch(x.Epoch), Index: muster.Index(x.Index)}
}

// StopOf converts a stop; a zero one is nil.
func StopOf(s muster.Stop) *Stop {
	if s == (muster.Stop{}) {
		return nil
	}
	return &Stop{Mode: uint32(s.Mode), Class: uint32(s.Class), Reason: s.Reason, At: int64(s.At)}
}

// Domain converts back; nil is the zero stop.
func (x *Stop) Domain() (muster.Stop, error) {
	var d decoder
	s := d.stop(x)
	return s, d.err
}

func (d *decoder) stop(x *Stop) muster.Stop {
	if x == nil {
		return muster.Stop{}
	}
	d.known("Stop", x.unknownFields)
	return muster.Stop{
		Mode:   enum(d, "Stop.mode", x.Mode, muster.StopKill),
		Class:  enum(d, "Stop.class", x.Class, muster.ClassCollateral),
		Reason: x.Reason,
		At:     d.time("Stop.at", x.At),
	}
}

// JobOf converts a job's row.
func JobOf(j *muster.Job) *Job {
	return &Job{
		Id:              uint64(j.ID),
		Spec:            j.Spec[:],
		Shape:           uint32(j.Shape),
		Name:            j.Name,
		User:            j.User,
		Queue:           j.Queue,
		Priority:        int64(j.Priority),
		Phase:           uint32(j.Phase),
		Submitted:       int64(j.Submitted),
		Started:         int64(j.Started),
		Finished:        int64(j.Finished),
		Attempt:         j.Attempt,
		Failures:        j.Failures,
		ClusterFailures: j.ClusterFailures,
		Backoff:         int64(j.Backoff),
		Stop:            StopOf(j.Stop),
		Class:           uint32(j.Class),
		ExitCode:        int64(j.ExitCode),
		Reason:          j.Reason,
		Attempts:        listOf(j.Attempts, attemptOf),
		StartBy:         int64(j.StartBy),
	}
}

// Domain converts back.
func (x *Job) Domain() (*muster.Job, error) {
	var d decoder
	j := d.job(x)
	return j, d.err
}

func (d *decoder) job(x *Job) *muster.Job {
	if !d.present("Job", x == nil) {
		return nil
	}
	d.known("Job", x.unknownFields)
	j := &muster.Job{
		ID:              muster.JobID(x.Id),
		Shape:           muster.ShapeID(x.Shape),
		Name:            x.Name,
		User:            x.User,
		Queue:           x.Queue,
		Priority:        d.number("Job.priority", x.Priority),
		Phase:           enum(d, "Job.phase", x.Phase, muster.JobCancelled),
		Submitted:       d.time("Job.submitted", x.Submitted),
		Started:         d.time("Job.started", x.Started),
		Finished:        d.time("Job.finished", x.Finished),
		Attempt:         x.Attempt,
		Failures:        x.Failures,
		ClusterFailures: x.ClusterFailures,
		Backoff:         d.duration("Job.backoff", x.Backoff),
		Stop:            d.stop(x.Stop),
		Class:           enum(d, "Job.class", x.Class, muster.ClassCollateral),
		ExitCode:        d.number("Job.exit_code", x.ExitCode),
		Reason:          x.Reason,
		Attempts:        domainList(d, "Job.attempts", x.Attempts, d.attempt),
		StartBy:         d.time("Job.start_by", x.StartBy),
	}
	d.hash("Job.spec", j.Spec[:], x.Spec)
	return j
}

// hash reads bytes of a fixed length.
func (d *decoder) hash(field string, into, from []byte) {
	if len(from) != len(into) {
		d.fail("%s has %d bytes, not %d", field, len(from), len(into))
		return
	}
	copy(into, from)
}

func attemptOf(a *muster.Attempt) *Attempt {
	return &Attempt{
		Number:   a.Number,
		Placed:   int64(a.Placed),
		Started:  int64(a.Started),
		Ended:    int64(a.Ended),
		Live:     int64(a.Live),
		Unready:  int64(a.Unready),
		Waiting:  int64(a.Waiting),
		Class:    uint32(a.Class),
		ExitCode: int64(a.ExitCode),
		Reason:   a.Reason,
		Culprit:  optionalAllocID(a.Culprit),
	}
}

func optionalAllocID(id muster.AllocID) *AllocID {
	if id.IsZero() {
		return nil
	}
	return AllocIDOf(id)
}

func (d *decoder) attempt(x *Attempt) muster.Attempt {
	d.known("Attempt", x.unknownFields)
	return muster.Attempt{
		Number:   x.Number,
		Placed:   d.time("Attempt.placed", x.Placed),
		Started:  d.time("Attempt.started", x.Started),
		Ended:    d.time("Attempt.ended", x.Ended),
		Live:     d.count("Attempt.live", x.Live),
		Unready:  d.count("Attempt.unready", x.Unready),
		Waiting:  d.count("Attempt.waiting", x.Waiting),
		Class:    enum(d, "Attempt.class", x.Class, muster.ClassCollateral),
		ExitCode: d.number("Attempt.exit_code", x.ExitCode),
		Reason:   x.Reason,
		Culprit:  d.allocID(x.Culprit),
	}
}

// AllocationOf converts an allocation's row.
func AllocationOf(a *muster.Allocation) *Allocation {
	return &Allocation{
		Id:         AllocIDOf(a.ID),
		Job:        uint64(a.Job),
		Attempt:    a.Attempt,
		Group:      int64(a.Group),
		Rank:       int64(a.Rank),
		Node:       uint32(a.Node),
		Slots:      uint64(a.Slots),
		Share:      int64(a.Share),
		MilliCores: int64(a.MilliCores),
		Memory:     int64(a.Memory),
		Port:       uint32(a.Port),
		Lease:      int64(a.Lease),
		Phase:      uint32(a.Phase),
		Go:         a.Go,
		Stop:       StopOf(a.Stop),
		Placed:     int64(a.Placed),
		PlacedAt:   uint64(a.PlacedAt),
		Running:    int64(a.Running),
		Ended:      int64(a.Ended),
		Class:      uint32(a.Class),
		ExitCode:   int64(a.ExitCode),
		Signal:     int64(a.Signal),
		Message:    a.Message,
		Peak:       int64(a.Peak),
	}
}

// Domain converts back.
func (x *Allocation) Domain() (*muster.Allocation, error) {
	var d decoder
	a := d.allocation(x)
	return a, d.err
}

func (d *decoder) allocation(x *Allocation) *muster.Allocation {
	if !d.present("Allocation", x == nil) {
		return nil
	}
	d.known("Allocation", x.unknownFields)
	d.present("Allocation.id", x.Id == nil)
	return &muster.Allocation{
		ID:         d.allocID(x.Id),
		Job:        muster.JobID(x.Job),
		Attempt:    x.Attempt,
		Group:      d.count("Allocation.group", x.Group),
		Rank:       d.count("Allocation.rank", x.Rank),
		Node:       muster.NodeID(x.Node),
		Slots:      muster.SlotSet(x.Slots),
		Share:      muster.MilliGPUs(d.amount("Allocation.share", x.Share)),
		MilliCores: muster.MilliCores(d.amount("Allocation.milli_cores", x.MilliCores)),
		Memory:     muster.Bytes(d.amount("Allocation.memory", x.Memory)),
		Port:       d.port("Allocation.port", x.Port),
		Lease:      d.duration("Allocation.lease", x.Lease),
		Phase:      enum(d, "Allocation.phase", x.Phase, muster.AllocEnded),
		Go:         x.Go,
		Stop:       d.stop(x.Stop),
		Placed:     d.time("Allocation.placed", x.Placed),
		PlacedAt:   muster.Index(x.PlacedAt),
		Running:    d.time("Allocation.running", x.Running),
		Ended:      d.time("Allocation.ended", x.Ended),
		Class:      enum(d, "Allocation.class", x.Class, muster.ClassCollateral),
		ExitCode:   d.number("Allocation.exit_code", x.ExitCode),
		Signal:     d.count("Allocation.signal", x.Signal),
		Message:    x.Message,
		Peak:       muster.Bytes(d.amount("Allocation.peak", x.Peak)),
	}
}

// AllocReportOf converts a report. Its message may quote what a program printed: bytes that are no UTF-8 are replaced.
func AllocReportOf(r *muster.AllocReport) *AllocReport {
	return &AllocReport{
		Id:       AllocIDOf(r.ID),
		Phase:    uint32(r.Phase),
		Running:  int64(r.Running),
		Ended:    int64(r.Ended),
		Class:    uint32(r.Class),
		ExitCode: int64(r.ExitCode),
		Signal:   int64(r.Signal),
		Message:  strings.ToValidUTF8(r.Message, "\uFFFD"),
		Peak:     int64(r.Peak),
	}
}

// AllocReportsOf converts a list of reports.
func AllocReportsOf(list []muster.AllocReport) []*AllocReport { return listOf(list, AllocReportOf) }

// Domain converts back.
func (x *AllocReport) Domain() (muster.AllocReport, error) {
	var d decoder
	if !d.present("AllocReport", x == nil) {
		return muster.AllocReport{}, d.err
	}
	r := d.allocReport(x)
	return r, d.err
}

func (d *decoder) allocReport(x *AllocReport) muster.AllocReport {
	d.known("AllocReport", x.unknownFields)
	d.present("AllocReport.id", x.Id == nil)
	return muster.AllocReport{
		ID:       d.allocID(x.Id),
		Phase:    enum(d, "AllocReport.phase", x.Phase, muster.AllocEnded),
		Running:  d.time("AllocReport.running", x.Running),
		Ended:    d.time("AllocReport.ended", x.Ended),
		Class:    enum(d, "AllocReport.class", x.Class, muster.ClassCollateral),
		ExitCode: d.number("AllocReport.exit_code", x.ExitCode),
		Signal:   d.count("AllocReport.signal", x.Signal),
		Message:  x.Message,
		Peak:     muster.Bytes(d.amount("AllocReport.peak", x.Peak)),
	}
}
