package wire

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/musterhpc/muster"
)

// Pages of jobs.
const (
	defaultPage = 1000
	largestPage = 10_000
)

// Job describes one job; detail adds attempts and the ranks of earlier ones, spec the whole spec.
func (r *Reader) Job(id muster.JobID, detail, spec bool) (*JobInfo, bool) {
	j, ok := r.snapshot.Job(id)
	if !ok {
		return nil, false
	}
	info := r.jobInfo(j)
	if detail {
		info.Attempts = listOf(j.Attempts, attemptOf)
		var earlier []*muster.Allocation
		for a := range r.snapshot.AllocsOfJob(id) {
			if !isCurrent(j, a) {
				earlier = append(earlier, a)
			}
		}
		info.EarlierRanks = r.rankInfos(r.snapshot.Spec(j.Spec), earlier)
	}
	if s := r.snapshot.Spec(j.Spec); spec && s != nil {
		info.Spec = JobSpecOf(s)
	}
	return info, true
}

// isCurrent says whether a rank is of the attempt that a job's own state is about: the newest, unless the job waits for another.
func isCurrent(j *muster.Job, a *muster.Allocation) bool {
	return a.Attempt == j.Attempt && j.Phase != muster.JobPending && j.Phase != muster.JobHeld
}

func (r *Reader) jobInfo(j *muster.Job) *JobInfo {
	info := &JobInfo{
		Id:          uint64(j.ID),
		Name:        j.Name,
		User:        j.User,
		Queue:       j.Queue,
		Priority:    int64(j.Priority),
		State:       j.Phase.String(),
		Class:       j.Class.String(),
		Reason:      j.Reason,
		SubmittedAt: int64(j.Submitted),
		StartedAt:   int64(j.Started),
		FinishedAt:  int64(j.Finished),
		Attempt:     j.Attempt,
		StartBy:     int64(j.StartBy),
		Version:     VersionOf(r.Version()),
	}
	switch j.Phase {
	case muster.JobPending, muster.JobStopping: // why it starts again, or ends
		if n := len(j.Attempts); n > 0 {
			info.Class, info.Reason = j.Attempts[n-1].Class.String(), j.Attempts[n-1].Reason
		}
	case muster.JobSucceeded, muster.JobFailed:
		info.HasExitCode = true
	case muster.JobCancelled: // before it ran there is no code
		info.HasExitCode = j.Started != 0 || j.ExitCode != 0
	}
	if info.HasExitCode {
		info.ExitCode = int64(j.ExitCode)
	}
	spec := r.snapshot.Spec(j.Spec)
	if spec != nil {
		info.RankCount = int64(spec.Ranks())
		info.Gpus = int64(spec.GPUs())
		info.TimeLimit = int64(spec.TimeLimit)
		info.Labels = labelsOf(spec.Labels)
	}
	if j.Phase == muster.JobPending || j.Phase == muster.JobHeld {
		return info
	}
	var ranks []*muster.Allocation
	for a := range r.snapshot.AllocsOfAttempt(j.ID, j.Attempt) {
		ranks = append(ranks, a)
		if a.Phase == muster.AllocReady || a.Phase == muster.AllocRunning {
			info.Ready++
		}
	}
	info.Ranks = r.rankInfos(spec, ranks)
	return info
}

func sortAllocs(list []*muster.Allocation) {
	slices.SortFunc(list, func(a, b *muster.Allocation) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Rank, b.Rank))
	})
}

// rankInfos describes allocations, in the order attempt, group, rank.
func (r *Reader) rankInfos(spec *muster.JobSpec, allocs []*muster.Allocation) []*RankInfo {
	sortAllocs(allocs)
	out := make([]*RankInfo, len(allocs))
	for i, a := range allocs {
		out[i] = r.rankInfo(spec, a)
	}
	return out
}

func (r *Reader) rankInfo(spec *muster.JobSpec, a *muster.Allocation) *RankInfo {
	info := &RankInfo{
		Group:       groupName(spec, a.Group),
		Rank:        int64(a.Rank),
		Attempt:     a.Attempt,
		State:       a.Phase.String(),
		HasExitCode: hasExitCode(a),
		Signal:      int64(a.Signal),
		Class:       a.Class.String(),
		Message:     a.Message,
		Alloc:       AllocIDOf(a.ID),
		StartedAt:   int64(a.Running),
		FinishedAt:  int64(a.Ended),
		MilliCores:  int64(a.MilliCores),
		Memory:      int64(a.Memory),
		Peak:        int64(a.Peak),
	}
	if info.HasExitCode {
		info.ExitCode = int64(a.ExitCode)
	}
	n, ok := r.snapshot.Node(a.Node)
	if !ok {
		return info
	}
	info.Node = n.Name
	for _, slot := range a.Slots.Slots() {
		info.GpuIndices = append(info.GpuIndices, int64(slot))
		if slot < len(n.GPUs) {
			info.Gpus = append(info.Gpus, n.GPUs[slot].UUID)
		}
	}
	return info
}

func groupName(spec *muster.JobSpec, group int) string {
	if spec == nil || group < 0 || group >= len(spec.Groups) {
		return strconv.Itoa(group)
	}
	return spec.Groups[group].Name
}

// hasExitCode says whether an ended rank's code was seen. Where the cluster ended it, no process may have been there, or none
// was seen to end: a zero then says nothing.
func hasExitCode(a *muster.Allocation) bool {
	switch {
	case a.Phase != muster.AllocEnded:
		return false
	case a.ExitCode != 0:
		return true
	case a.Class == muster.ClassNode || a.Class == muster.ClassPrepare || a.Class == muster.ClassGPU:
		return false
	}
	return a.Class == muster.ClassNone || a.Running != 0
}

// Jobs lists jobs, newest first, a page at a time: those of user, or as the request says, that live or ended since a time.
// Asking for an ended state asks for ended jobs however old.
func (r *Reader) Jobs(q *ListJobsRequest, user string) (*ListJobsReply, error) {
	f, err := filterOf(q, user)
	if err != nil {
		return nil, err
	}
	reply := &ListJobsReply{Version: VersionOf(r.Version())}
	from, more, err := pageStart(q.GetPageToken())
	if err != nil || !more {
		return reply, err
	}
	limit := int(q.GetLimit())
	switch {
	case limit < 0:
		return nil, muster.Errorf(muster.KindUsage, "limit %d is negative", limit)
	case limit == 0:
		limit = defaultPage
	}
	limit = min(limit, largestPage)
	for j := range r.snapshot.JobsBackward(from) {
		if j.Submitted < f.since {
			break // state time never goes back: all that follow are older
		}
		if !f.takes(j) || !r.hasLabels(j, f.labels) {
			continue
		}
		if len(reply.Jobs) == limit {
			reply.NextPageToken = strconv.FormatUint(reply.Jobs[limit-1].Id, 10)
			break
		}
		reply.Jobs = append(reply.Jobs, r.jobInfo(j))
	}
	return reply, nil
}

// pageStart reads a token: the number of the last job that was listed. more is false where nothing can follow it.
func pageStart(token string) (from muster.JobID, more bool, err error) {
	if token == "" {
		return 0, true, nil
	}
	last, err := strconv.ParseUint(token, 10, 64)
	if err != nil || last == 0 {
		return 0, false, muster.Errorf(muster.KindUsage, "page token %q was not given by a server", token)
	}
	return muster.JobID(last - 1), last > 1, nil
}

// jobFilter is what a request asks for.
type jobFilter struct {
	user, queue  string // "" = any
	states       []muster.JobPhase
	labels       []*Label
	ended        bool
	endedSince   muster.Time
	since, until muster.Time
}

func filterOf(q *ListJobsRequest, user string) (*jobFilter, error) {
	f := &jobFilter{
		user:       user,
		queue:      q.GetQueue(),
		labels:     q.GetLabels(),
		ended:      q.GetEnded(),
		endedSince: muster.Time(q.GetEndedSince()),
		since:      muster.Time(q.GetSince()),
		until:      muster.Time(q.GetUntil()),
	}
	switch q.GetUser() {
	case "":
	case "*":
		f.user = ""
	default:
		f.user = q.GetUser()
	}
	for _, name := range q.GetStates() {
		phase, ok := muster.ParseJobPhase(name)
		if !ok || phase == muster.JobPhaseUnknown {
			return nil, muster.Errorf(muster.KindUsage, "there is no state %q of a job", name).
				WithHint("One of: held, pending, preparing, running, stopping, succeeded, failed, cancelled")
		}
		f.states = append(f.states, phase)
		f.ended = f.ended || phase.Terminal()
	}
	return f, nil
}

func (f *jobFilter) takes(j *muster.Job) bool {
	switch {
	case f.user != "" && j.User != f.user:
	case f.queue != "" && j.Queue != f.queue:
	case len(f.states) > 0 && !slices.Contains(f.states, j.Phase):
	case j.Phase.Terminal() && !f.ended && (f.endedSince == 0 || j.Finished < f.endedSince):
	case f.until != 0 && j.Submitted >= f.until:
	default:
		return true
	}
	return false
}

// hasLabels says whether a job has all of labels.
func (r *Reader) hasLabels(j *muster.Job, labels []*Label) bool {
	if len(labels) == 0 {
		return true
	}
	spec := r.snapshot.Spec(j.Spec)
	if spec == nil {
		return false
	}
	for _, want := range labels {
		if !slices.Contains(spec.Labels, muster.Label{Key: want.GetKey(), Value: want.GetValue()}) {
			return false
		}
	}
	return true
}
