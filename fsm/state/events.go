package state

import (
	"fmt"
	"iter"
	"slices"

	"github.com/musterhpc/muster"
)

// eventsKept is how many events the state remembers, for people: the newest.
const eventsKept = 10_000

// Event is something that happened. It is made in Apply, out of the change itself, so every server has the same. What it says
// in words is put together when somebody reads it.
type Event struct {
	Index    muster.Index // of the entry
	Nth      uint32       // in the entry, from 0
	Time     muster.Time
	Kind     EventKind
	Job      muster.JobID // 0 = it is not about a job
	Name     string       // the job's
	User     string       // whose job it is; of a node's event, who did it
	Queue    string
	Attempt  uint32
	Node     muster.NodeID // 0 = it is not about a node
	Class    muster.Class
	ExitCode int
	Text     string // the reason, in one sentence
}

// EventKind is what happened.
type EventKind uint8

// The kinds of events.
const (
	EventUnknown      EventKind = iota
	EventSubmitted              // a job was submitted
	EventHeld                   // by a person, or by the loop guard
	EventReleased               //
	EventPriority               // changed
	EventPlaced                 // an attempt was given its nodes
	EventStarted                // all its ranks run
	EventStopping               // it was asked to end, or a rank failed
	EventAttemptEnded           // and the job goes on, or is held
	EventSucceeded
	EventFailed
	EventCancelled
	EventNodeRegistered // new, or back
	EventNodeDraining
	EventNodeUndrained
	EventNodeLost // its leases ran out, or it was fenced
	EventNodeRemoved
	EventNodeLabelled
	EventQueues // the queues or the policy were changed
)

var eventNames = []string{"unknown", "job.submitted", "job.held", "job.released", "job.priority", "job.placed", "job.started",
	"job.stopping", "job.attempt_ended", "job.succeeded", "job.failed", "job.cancelled", "node.registered", "node.draining",
	"node.undrained", "node.lost", "node.removed", "node.labelled", "queues.changed"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}

// eventLog is the newest events. Snapshots share it: what it holds is only added to. It is not in the digest, but made of what
// is; a snapshot file has the newest eventsKept of it.
type eventLog struct {
	events []Event
	index  muster.Index // of the entry that made the last
	nth    uint32       // the number of the next one of that entry
}

func (l *eventLog) add(e Event) {
	if e.Index != l.index {
		l.index, l.nth = e.Index, 0
	}
	e.Nth = l.nth
	l.nth++
	if len(l.events) >= 2*eventsKept {
		l.events = slices.Clone(l.newest())
	}
	l.events = append(l.events, e)
}

// load takes over an event of a snapshot file.
func (l *eventLog) load(e *Event) error {
	if e == nil || e.Index < l.index || e.Index == l.index && e.Nth < l.nth {
		return fmt.Errorf("events are not in order")
	}
	l.events = append(l.events, *e)
	l.index, l.nth = e.Index, e.Nth+1
	return nil
}

func (l *eventLog) newest() []Event { return l.events[max(0, len(l.events)-eventsKept):] }

// note remembers what happened to a job.
func (s *State) note(kind EventKind, j *muster.Job, text string) {
	s.events.add(Event{Index: s.index, Time: s.now(), Kind: kind, Job: j.ID, Name: j.Name, User: j.User, Queue: j.Queue, Attempt: j.Attempt,
		Class: j.Class, ExitCode: j.ExitCode, Text: text})
}

// noteAttempt remembers how a job's newest attempt ended, when the job goes on.
func (s *State) noteAttempt(j *muster.Job, at *muster.Attempt) {
	s.events.add(Event{Index: s.index, Time: s.now(), Kind: EventAttemptEnded, Job: j.ID, Name: j.Name, User: j.User, Queue: j.Queue,
		Attempt: at.Number, Class: at.Class, ExitCode: at.ExitCode, Text: at.Reason})
}

// noteNode remembers what happened to a node; user is who did it, "" when nobody did.
func (s *State) noteNode(kind EventKind, n *muster.Node, user, text string) {
	s.events.add(Event{Index: s.index, Time: s.now(), Kind: kind, User: user, Node: n.ID, Text: text})
}

// Events yields the newest events that came after the nth of an entry, the oldest first; after 0, 0: all that are kept.
func (s *Snapshot) Events(index muster.Index, nth uint32) iter.Seq[*Event] {
	events := s.events.newest()
	from, _ := slices.BinarySearchFunc(events, struct{}{}, func(e Event, _ struct{}) int {
		if e.Index < index || e.Index == index && e.Nth <= nth && index != 0 {
			return -1
		}
		return 1
	})
	return func(yield func(*Event) bool) {
		for i := from; i < len(events); i++ {
			if !yield(&events[i]) {
				return
			}
		}
	}
}
