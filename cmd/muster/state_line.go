package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/rpc"
	"github.com/musterhpc/muster/wire"
)

const (
	waitsAfter = 2 * time.Second // so long pending, and it is said why
	waitsEvery = 5 * time.Second // and again, when the reason has changed
	// waitsAnswer is shorter than an outage that is worth a word: the stream of states says that word.
	waitsAnswer = 1500 * time.Millisecond
)

// stateLine says on stderr what followed jobs are doing: of one its state at each change, and why it waits; of several their
// sum. A job that is pending for a moment only is not worth more than the word.
type stateLine struct {
	app    *app
	client *rpc.Client
	refs   []*wire.JobRef

	mu    sync.Mutex
	jobs  map[uint64]*wire.JobInfo // the newest of each
	last  string
	waits string // why the one that waits does, as was said last
}

func newStateLine(a *app, client *rpc.Client, refs []*wire.JobRef) *stateLine {
	return &stateLine{app: a, client: client, refs: refs, jobs: map[uint64]*wire.JobInfo{}}
}

func (l *stateLine) show(info *wire.JobInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[info.GetId()] = info
	text := stateText(info)
	if len(l.refs) > 1 {
		text = l.sum()
	}
	if text == "" || l.last == text {
		return
	}
	l.last, l.waits = text, ""
	fmt.Fprintf(l.app.io.err, "-- %s --\n", text)
}

// sum counts the jobs by state: "3 jobs: 1 pending, 2 running"; "" while not all are known, and once all are over.
func (l *stateLine) sum() string {
	if len(l.jobs) < len(l.refs) {
		return ""
	}
	states := map[string]int{}
	ended := 0
	for _, info := range l.jobs {
		states[info.GetState()]++
		if over(info) {
			ended++
		}
	}
	if ended == len(l.refs) {
		return ""
	}
	return sumOf(len(l.refs), states)
}

// sumOf says how many of n jobs are in which state.
func sumOf(n int, states map[string]int) string {
	var parts []string
	for phase := muster.JobHeld; phase <= muster.JobCancelled; phase++ {
		if n := states[phase.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	return count(n, "job") + ": " + strings.Join(parts, ", ")
}

// stateText is what there is to say of a job's state; "" when the verdict says it.
func stateText(info *wire.JobInfo) string {
	name := fmt.Sprintf("%s (%d) ", info.GetName(), info.GetId())
	switch state, _ := muster.ParseJobPhase(info.GetState()); state {
	case muster.JobPending:
		if attempts := info.GetAttempts(); len(attempts) > 0 {
			at := attempts[len(attempts)-1]
			return fmt.Sprintf("%sattempt %d ended (%s)%s; it starts again", name, at.GetNumber(), muster.Class(at.GetClass()), because(at.GetReason()))
		}
		return name + "is pending"
	case muster.JobHeld:
		if info.GetClass() == "" { // by a person; the loop guard's is a verdict
			return name + "is held" + because(info.GetReason())
		}
	case muster.JobPreparing:
		if info.GetRankCount() > 1 {
			return fmt.Sprintf("%sis preparing: %d of %d ranks ready", name, info.GetReady(), info.GetRankCount())
		}
	case muster.JobRunning:
		return name + "runs on " + strings.Join(nodesOf(info), " ")
	case muster.JobStopping:
		return name + "is stopping" + because(info.GetReason())
	}
	return ""
}

// sayWaits says why a job waits that has been pending for a while (of several: the first that does), at most each five
// seconds, until ctx ends. That nobody can say it is no error: the state line goes on without.
func (l *stateLine) sayWaits(ctx context.Context) {
	for pause := waitsAfter; ; pause = waitsEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		id := l.pending()
		if id == 0 {
			continue
		}
		within, cancel := context.WithTimeout(ctx, waitsAnswer)
		why, err := l.client.Why(within, &wire.WhyRequest{Job: &wire.JobRef{Id: id}})
		cancel()
		if err == nil {
			l.explain(why)
		}
	}
}

// pending is the first job that waits, in the order of the file; 0: none does.
func (l *stateLine) pending() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ref := range l.refs {
		if l.jobs[ref.GetId()].GetState() == muster.JobPending.String() {
			return ref.GetId()
		}
	}
	return 0
}

func (l *stateLine) explain(why *wire.WhyReply) {
	job, reason := why.GetJob(), why.First()
	if reason == "" || job.GetState() != muster.JobPending.String() {
		return
	}
	text := fmt.Sprintf("%s (%d) is pending: %s", job.GetName(), job.GetId(), reason)
	if why.GetOf() > 1 {
		text += fmt.Sprintf("; position %d of %d", why.GetPosition(), why.GetOf())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waits == text {
		return
	}
	l.waits = text
	fmt.Fprintf(l.app.io.err, "-- %s --\n", text)
}
