package cluster

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// tellEvery lets what happens gather: a look at the newest events costs as much for one as for a hundred.
const tellEvery = 50 * time.Millisecond

// tell writes a line for each event of the state, and counts it: the leader alone, so that there is one line and one count in
// the cluster. What committed before this term was told by the leader before, or is lost with it: the state still has it.
func (l *leadership) tell(ctx context.Context) error {
	s := l.server
	wake, stop := s.hub.watch(nil, nil)
	defer stop()
	told := telling{metrics: s.metrics, lines: lines{log: s.logger, every: time.Second}}
	for e := range s.hub.newest().snapshot.Events(0, 0) {
		told.index, told.nth = e.Index, e.Nth
	}
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			told.lines.flush()
			return nil
		case <-ticker.C:
		}
		told.lines.tick(time.Now())
		select {
		case <-wake:
			told.take(s.hub.newest().snapshot, time.Now())
		default:
		}
	}
}

// telling is how far the events were told.
type telling struct {
	metrics *instruments
	lines   lines
	index   muster.Index
	nth     uint32
}

// take tells what s has beyond that.
func (t *telling) take(s *state.Snapshot, now time.Time) {
	for e := range s.Events(t.index, t.nth) {
		t.index, t.nth = e.Index, e.Nth
		t.count(s, e)
		t.lines.say(now, levelOf(e.Kind), e.Kind.String(), wordsOf(s, e))
	}
}

// count counts an event.
func (t *telling) count(s *state.Snapshot, e *state.Event) {
	m := t.metrics
	switch e.Kind {
	case state.EventSubmitted:
		m.submitted.Inc()
	case state.EventStarted:
		if job, ok := s.Job(e.Job); ok && job.Started == e.Time {
			m.wait.Observe(max(0, e.Time.Sub(job.Submitted).Seconds()))
		}
	case state.EventAttemptEnded:
		m.attempts.WithLabelValues(e.Class.String()).Inc()
	case state.EventSucceeded:
		m.ended.WithLabelValues("succeeded").Inc()
	case state.EventFailed:
		m.ended.WithLabelValues("failed").Inc()
	case state.EventCancelled:
		m.ended.WithLabelValues("cancelled").Inc()
	case state.EventNodeLost:
		m.nodesLost.Inc()
	}
}

// levelOf says how much an event matters: what is done again, held or lost wants a look.
func levelOf(k state.EventKind) hclog.Level {
	switch k {
	case state.EventPlaced, state.EventStopping:
		return hclog.Debug // the plan, and the end, have lines of their own
	case state.EventHeld, state.EventNodeLost, state.EventAttemptEnded:
		return hclog.Warn
	}
	return hclog.Info
}

// wordsOf are an event's keys and values, without what it doesn't have.
func wordsOf(s *state.Snapshot, e *state.Event) []any {
	var words []any
	add := func(key string, value any, there bool) {
		if there {
			words = append(words, key, value)
		}
	}
	add("job", uint64(e.Job), e.Job != 0)
	add("name", e.Name, e.Name != "")
	node, known := s.Node(e.Node)
	if known {
		add("node", node.Name, true)
	} else {
		add("node", uint64(e.Node), e.Node != 0)
	}
	add("user", e.User, e.User != "")
	add("queue", e.Queue, e.Queue != "" && e.Kind == state.EventSubmitted)
	add("attempt", e.Attempt, e.Attempt > 1)
	add("class", e.Class.String(), e.Class != muster.ClassNone)
	add("exit", e.ExitCode, e.ExitCode != 0)
	add("reason", e.Text, e.Text != "")
	add("index", uint64(e.Index), true)
	return words
}

// linesAtOnce is how many lines of one kind are written in one period; of more, how many there were.
const linesAtOnce = 20

// lines writes lines, and of too many of one kind in a period only their number.
type lines struct {
	log   hclog.Logger
	every time.Duration
	began time.Time
	kinds map[string]*lineCount
}

type lineCount struct {
	level   hclog.Level
	said    int
	skipped int
}

func (l *lines) say(now time.Time, level hclog.Level, what string, words []any) {
	l.tick(now)
	c := l.kinds[what]
	if c == nil {
		c = &lineCount{level: level}
		l.kinds[what] = c
	}
	if c.said++; c.said > linesAtOnce {
		c.skipped++
		return
	}
	l.log.Log(level, what, words...)
}

// tick ends the period when its time has come.
func (l *lines) tick(now time.Time) {
	if l.kinds != nil && now.Sub(l.began) < l.every {
		return
	}
	l.flush()
	l.began, l.kinds = now, map[string]*lineCount{}
}

// flush says how many lines were left out.
func (l *lines) flush() {
	for what, c := range l.kinds {
		if c.skipped > 0 {
			l.log.Log(c.level, what+", and more of these", "count", c.skipped)
		}
	}
	l.kinds = nil
}
