package sim

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
)

// QueueResult is what came of a replay.
type QueueResult struct {
	Jobs     []Job
	Segments []Segment // by start, then by job

	All         Summary
	BySize      []Summary // "cpu", "share", then by GPUs
	ByUser      []Summary // by name
	Preemptions int
	GPUs        int
	Makespan    time.Duration // from the first submission to the last end
	Utilisation float64       // GPU time in use over GPU time until the last end
	Loaded      float64       // the same, until the last submission
	Stranded    float64       // GPU time free while a job waited, over all GPU time until the last submission
}

// Summary is the times of some jobs. A job's completion time counts from its submission; its wait is all of that during which it
// made no progress.
type Summary struct {
	Name                          string
	Jobs                          int
	MeanJCT, MedianJCT, P99JCT    time.Duration
	MeanWait, MedianWait, P99Wait time.Duration
}

// idleTime sums up how many GPUs were free while jobs waited.
type idleTime struct {
	total    int
	free     int // now
	waiting  bool
	stranded float64 // GPU-seconds
}

func (t *idleTime) pass(d time.Duration) {
	if t.waiting {
		t.stranded += float64(t.free) * d.Seconds()
	}
}

func (r *replay) freeGPUs() int {
	free := 0
	for n := range r.snap.Nodes() {
		free += n.FreeSlots.Count()
	}
	return free
}

func (r *replay) waiting() bool {
	for range r.snap.Pending() {
		return true
	}
	return false
}

func (r *replay) result() *QueueResult {
	res := &QueueResult{Jobs: r.cfg.Jobs, Segments: r.segments, GPUs: r.idle.total}
	slices.SortStableFunc(res.Segments, func(a, b Segment) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Job, b.Job)) })
	ends := make([]time.Duration, len(res.Jobs))
	first, last, lastSubmit := res.Jobs[0].Submit, time.Duration(0), res.Jobs[len(res.Jobs)-1].Submit
	var used, usedLoaded float64
	for _, s := range res.Segments {
		ends[s.Job] = s.End
		last = max(last, s.End)
		gpus := float64(res.Jobs[s.Job].Need.GPUs*res.Jobs[s.Job].Need.Milli) / 1000
		used += gpus * (s.End - s.Start).Seconds()
		usedLoaded += gpus * max(0, min(s.End, lastSubmit)-s.Start).Seconds()
	}
	res.Preemptions = len(res.Segments) - len(res.Jobs)
	res.Makespan = last - first
	res.Utilisation = ratio(used, float64(res.GPUs)*res.Makespan.Seconds())
	res.Loaded = ratio(usedLoaded, float64(res.GPUs)*(lastSubmit-first).Seconds())
	res.Stranded = ratio(r.idle.stranded, float64(res.GPUs)*res.Makespan.Seconds())

	sizes, users := map[string][]int{}, map[string][]int{}
	var all []int
	for i := range res.Jobs {
		all = append(all, i)
		sizes[sizeName(&res.Jobs[i].Need)] = append(sizes[sizeName(&res.Jobs[i].Need)], i)
		users[res.Jobs[i].User] = append(users[res.Jobs[i].User], i)
	}
	res.All = res.summary("all", all, ends)
	res.BySize = res.summaries(sizes, ends)
	res.ByUser = res.summaries(users, ends)
	return res
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func sizeName(n *Need) string {
	switch {
	case n.GPUs == 0:
		return "cpu"
	case n.Milli < 1000:
		return "share"
	}
	return strconv.Itoa(n.GPUs)
}

func (res *QueueResult) summaries(groups map[string][]int, ends []time.Duration) []Summary {
	var out []Summary
	for name, jobs := range groups {
		out = append(out, res.summary(name, jobs, ends))
	}
	slices.SortFunc(out, func(a, b Summary) int { return compareSizes(a.Name, b.Name) })
	return out
}

func sortSizes(list []PlacedBySize) {
	slices.SortFunc(list, func(a, b PlacedBySize) int { return compareSizes(a.Name, b.Name) })
}

// compareSizes puts numbers last, in their order.
func compareSizes(a, b string) int {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Or(cmp.Compare(b2i(errX == nil), b2i(errY == nil)), cmp.Compare(a, b))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (res *QueueResult) summary(name string, jobs []int, ends []time.Duration) Summary {
	jct, wait := make([]time.Duration, len(jobs)), make([]time.Duration, len(jobs))
	for k, i := range jobs {
		jct[k] = ends[i] - res.Jobs[i].Submit
		wait[k] = jct[k] - res.Jobs[i].Duration
	}
	s := Summary{Name: name, Jobs: len(jobs), MeanJCT: mean(jct), MeanWait: mean(wait)}
	slices.Sort(jct)
	slices.Sort(wait)
	s.MedianJCT, s.P99JCT = quantile(jct, 0.5), quantile(jct, 0.99)
	s.MedianWait, s.P99Wait = quantile(wait, 0.5), quantile(wait, 0.99)
	return s
}

func mean(list []time.Duration) time.Duration {
	sum := 0.0
	for _, d := range list {
		sum += d.Seconds()
	}
	return time.Duration(sum / float64(len(list)) * float64(time.Second))
}

// quantile is the nearest rank of a sorted list.
func quantile(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// WriteSegments writes job_id,start,end,alloc, in seconds.
func (res *QueueResult) WriteSegments(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "job_id,start,end,alloc")
	for _, s := range res.Segments {
		fmt.Fprintf(b, "%s,%s,%s,%s\n", res.Jobs[s.Job].ID, secondsText(s.Start), secondsText(s.End), s.Alloc)
	}
	return b.Flush()
}

func secondsText(d time.Duration) string {
	ms := d.Milliseconds()
	return fmt.Sprintf("%d.%03d", ms/1000, ms%1000)
}
