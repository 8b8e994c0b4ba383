package wire

import (
	"time"

	"github.com/musterhpc/muster"
)

// The muster.v1 structs: what the HTTP API answers and -o json prints. Names and meanings only ever grow.

// ItemsJSON is the form of every answer; one thing is a list of one.
type ItemsJSON[T any] struct {
	Schema        string `json:"schema"`
	Items         []T    `json:"items"`
	NextPageToken string `json:"next_page_token,omitempty"`
}

// ItemsOf wraps items.
func ItemsOf[T any](items []T) ItemsJSON[T] {
	if items == nil {
		items = []T{}
	}
	return ItemsJSON[T]{Schema: Schema, Items: items}
}

// JobJSON is a job.
type JobJSON struct {
	ID        uint64            `json:"id"`
	Name      string            `json:"name"`
	User      string            `json:"user"`
	Queue     string            `json:"queue"`
	Priority  int64             `json:"priority"`
	State     string            `json:"state"` // held, pending, preparing, running, stopping, succeeded, failed, cancelled
	Class     string            `json:"class"` // why it ended, or is held; "" = it succeeded, or there is nothing to say yet
	Reason    string            `json:"reason"`
	Submitted *time.Time        `json:"submitted_at"`
	StartBy   *time.Time        `json:"start_by,omitempty"` // cancelled when not placed by then
	Started   *time.Time        `json:"started_at"`
	Finished  *time.Time        `json:"finished_at"`
	ExitCode  *int64            `json:"exit_code"` // null until known
	Attempt   uint32            `json:"attempt"`   // number of the newest; 0 = never placed
	RankCount int64             `json:"rank_count"`
	GPUs      int64             `json:"gpus"` // of all ranks
	TimeLimit *string           `json:"time_limit"`
	Labels    map[string]string `json:"labels"`
	Ranks     []RankJSON        `json:"ranks"` // of the newest attempt, then, where details were asked for, of earlier ones
	Attempts  []AttemptJSON     `json:"attempts,omitempty"`
	Spec      *JobSpecJSON      `json:"spec,omitempty"`
	Position  int64             `json:"position,omitempty"` // of a pending job in its queue's order, of so many
	Of        int64             `json:"of,omitempty"`
	Waits     string            `json:"waits,omitempty"` // the first thing that why says of a pending job
}

// RankJSON is one rank of an attempt.
type RankJSON struct {
	Group      string     `json:"group"`
	Rank       int64      `json:"rank"`
	Attempt    uint32     `json:"attempt"`
	State      string     `json:"state"` // pending, preparing, ready, running, stopping, ended
	Node       string     `json:"node"`
	GPUs       []string   `json:"gpus"` // UUIDs
	GPUIndices []int64    `json:"gpu_indices"`
	ExitCode   *int64     `json:"exit_code"`
	Signal     int64      `json:"signal,omitempty"`
	Class      string     `json:"class"`
	Message    string     `json:"message"`
	Alloc      string     `json:"alloc"` // allocation number, as file names and logs have it
	Started    *time.Time `json:"started_at"`
	Finished   *time.Time `json:"finished_at"`
	Cores      float64    `json:"cores"`
	Memory     string     `json:"memory"`
	Peak       string     `json:"peak_memory,omitempty"`
}

// AttemptJSON is what is remembered of an attempt.
type AttemptJSON struct {
	Number   uint32     `json:"number"`
	Placed   *time.Time `json:"placed_at"`
	Started  *time.Time `json:"started_at"`
	Ended    *time.Time `json:"ended_at"`
	Class    string     `json:"class"`
	ExitCode int64      `json:"exit_code"`
	Reason   string     `json:"reason"`
}

// JobsJSON gives jobs' JSON form.
func JobsJSON(jobs []*JobInfo) []JobJSON {
	out := make([]JobJSON, len(jobs))
	for i, j := range jobs {
		out[i] = jobJSONOf(j)
	}
	return out
}

func jobJSONOf(j *JobInfo) JobJSON {
	out := JobJSON{
		ID:        j.GetId(),
		Name:      j.GetName(),
		User:      j.GetUser(),
		Queue:     j.GetQueue(),
		Priority:  j.GetPriority(),
		State:     j.GetState(),
		Class:     j.GetClass(),
		Reason:    j.GetReason(),
		Submitted: moment(j.GetSubmittedAt()),
		StartBy:   moment(j.GetStartBy()),
		Started:   moment(j.GetStartedAt()),
		Finished:  moment(j.GetFinishedAt()),
		ExitCode:  optional(j.GetHasExitCode(), j.GetExitCode()),
		Attempt:   j.GetAttempt(),
		RankCount: j.GetRankCount(),
		GPUs:      j.GetGpus(),
		Labels:    map[string]string{},
		Ranks:     make([]RankJSON, 0, len(j.GetRanks())+len(j.GetEarlierRanks())),
		Position:  j.GetPosition(),
		Of:        j.GetOf(),
		Waits:     j.GetWaits(),
	}
	if limit := j.GetTimeLimit(); limit > 0 {
		text := muster.FormatDuration(time.Duration(limit))
		out.TimeLimit = &text
	}
	for _, l := range j.GetLabels() {
		out.Labels[l.GetKey()] = l.GetValue()
	}
	for _, list := range [][]*RankInfo{j.GetRanks(), j.GetEarlierRanks()} {
		for _, r := range list {
			out.Ranks = append(out.Ranks, rankJSONOf(r))
		}
	}
	for _, a := range j.GetAttempts() {
		out.Attempts = append(out.Attempts, AttemptJSON{
			Number:   a.GetNumber(),
			Placed:   moment(a.GetPlaced()),
			Started:  moment(a.GetStarted()),
			Ended:    moment(a.GetEnded()),
			Class:    muster.Class(a.GetClass()).String(),
			ExitCode: a.GetExitCode(),
			Reason:   a.GetReason(),
		})
	}
	if j.GetSpec() != nil {
		if spec, err := j.GetSpec().Domain(); err == nil { // one from a newer server is left out: half of it would mislead
			s := JobSpecJSONOf(spec)
			out.Spec = &s
		}
	}
	return out
}

func rankJSONOf(r *RankInfo) RankJSON {
	id, _ := r.GetAlloc().Domain() // what can't be read is 0-0
	return RankJSON{
		Group:      r.GetGroup(),
		Rank:       r.GetRank(),
		Attempt:    r.GetAttempt(),
		State:      r.GetState(),
		Node:       r.GetNode(),
		GPUs:       append([]string{}, r.GetGpus()...),
		GPUIndices: append([]int64{}, r.GetGpuIndices()...),
		ExitCode:   optional(r.GetHasExitCode(), r.GetExitCode()),
		Signal:     r.GetSignal(),
		Class:      r.GetClass(),
		Message:    r.GetMessage(),
		Alloc:      id.String(),
		Started:    moment(r.GetStartedAt()),
		Finished:   moment(r.GetFinishedAt()),
		Cores:      cores(r.GetMilliCores()),
		Memory:     muster.Bytes(r.GetMemory()).String(),
		Peak:       unlessZero(muster.Bytes(r.GetPeak()), muster.Bytes.String),
	}
}

// LogLineJSON is a line that a rank has printed, or why none comes.
type LogLineJSON struct {
	Group   int64      `json:"group"` // its position in the job
	Rank    int64      `json:"rank"`
	Attempt uint32     `json:"attempt"`
	Node    string     `json:"node"`
	Stream  string     `json:"stream"` // stdout, stderr
	Time    *time.Time `json:"time"`   // when it was written
	Text    string     `json:"text"`   // without its newline
	Note    string     `json:"note,omitempty"`
	Lost    int64      `json:"lost_bytes,omitempty"` // before this line, that rotation has removed
}

// Moment gives RFC 3339 in UTC of Unix milliseconds, or null for never.
func Moment(ms int64) *time.Time { return moment(ms) }

// moment gives RFC 3339 in UTC, or null for never.
func moment(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := time.UnixMilli(ms).UTC()
	return &t
}

func optional(has bool, v int64) *int64 {
	if !has {
		return nil
	}
	return &v
}

func cores(milli int64) float64 { return float64(milli) / 1000 }
