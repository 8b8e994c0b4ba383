package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

func eventOf(e *state.Event) *Event {
	return &Event{
		Index:    uint64(e.Index),
		Nth:      e.Nth,
		Time:     int64(e.Time),
		Kind:     uint32(e.Kind),
		Job:      uint64(e.Job),
		Name:     e.Name,
		User:     e.User,
		Queue:    e.Queue,
		Attempt:  e.Attempt,
		Node:     uint32(e.Node),
		Class:    uint32(e.Class),
		ExitCode: int64(e.ExitCode),
		Text:     e.Text,
	}
}

func (d *decoder) event(x *Event) *state.Event {
	if !d.present("Event", x == nil) {
		return nil
	}
	d.known("Event", x.unknownFields)
	return &state.Event{
		Index:    muster.Index(x.Index),
		Nth:      x.Nth,
		Time:     d.time("Event.time", x.Time),
		Kind:     enum(d, "Event.kind", x.Kind, state.EventQueues),
		Job:      muster.JobID(x.Job),
		Name:     x.Name,
		User:     x.User,
		Queue:    x.Queue,
		Attempt:  x.Attempt,
		Node:     muster.NodeID(x.Node),
		Class:    enum(d, "Event.class", x.Class, muster.ClassCollateral),
		ExitCode: d.number("Event.exit_code", x.ExitCode),
		Text:     x.Text,
	}
}

// EventFilter says which events are wanted; the zero value takes all.
type EventFilter struct {
	Job   muster.JobID
	Node  muster.NodeID
	Queue string
	Since muster.Time
}

func (f *EventFilter) takes(e *state.Event) bool {
	switch {
	case e.Time < f.Since:
	case f.Job != 0 && e.Job != f.Job:
	case f.Node != 0 && e.Node != f.Node:
	case f.Queue != "" && e.Queue != f.Queue:
	default:
		return true
	}
	return false
}

// EventFilterOf finds the object that somebody means: a job's number, a job of user's by its name, a node, a queue.
func (r *Reader) EventFilterOf(object, user string) (EventFilter, error) {
	if object == "" {
		return EventFilter{}, nil
	}
	var id muster.JobID
	if _, err := fmt.Sscanf(object, "%d", &id); err == nil && id.String() == object {
		id, err := r.ResolveJob(&JobRef{Id: uint64(id)}, user)
		return EventFilter{Job: id}, err
	}
	id, err := r.ResolveJob(&JobRef{Name: object}, user)
	if err == nil {
		return EventFilter{Job: id}, nil
	}
	if n, ok := r.snapshot.NodeNamed(object); ok {
		return EventFilter{Node: n.ID}, nil
	}
	if q, ok := r.snapshot.Queue(object); ok {
		return EventFilter{Queue: q.Name}, nil
	}
	return EventFilter{}, muster.Errorf(muster.KindNotFound, "no job of yours, no node and no queue has the name %q", object).
		WithHint("muster ps -A, muster node ls and muster queue ls list them")
}

// Events gives, the oldest first, at most limit events that came after the nth of a log entry, and the place behind the last
// one that was looked at.
func (r *Reader) Events(f EventFilter, index muster.Index, nth uint32, limit int) (events []*EventInfo, lastIndex muster.Index, lastNth uint32) {
	for e := range r.snapshot.Events(index, nth) {
		if len(events) == limit {
			break
		}
		index, nth = e.Index, e.Nth
		if f.takes(e) {
			events = append(events, r.eventInfo(e))
		}
	}
	return events, index, nth
}

func (r *Reader) eventInfo(e *state.Event) *EventInfo {
	info := &EventInfo{
		Index:   uint64(e.Index),
		Nth:     e.Nth,
		Time:    int64(e.Time),
		Kind:    e.Kind.String(),
		Job:     uint64(e.Job),
		Name:    e.Name,
		User:    e.User,
		Queue:   e.Queue,
		Attempt: e.Attempt,
		Class:   e.Class.String(),
	}
	if n, ok := r.snapshot.Node(e.Node); ok {
		info.Node = n.Name
	}
	info.Text = r.eventText(e, info.Node)
	return info
}

// eventText says in one sentence what happened.
func (r *Reader) eventText(e *state.Event, node string) string {
	job := fmt.Sprintf("%s (%d)", e.Name, e.Job)
	reason := e.Text
	if reason != "" {
		reason = ": " + reason
	}
	switch e.Kind {
	case state.EventSubmitted:
		return fmt.Sprintf("%s was submitted by %s to %s", job, e.User, e.Queue)
	case state.EventPlaced:
		return fmt.Sprintf("%s: attempt %d was placed%s", job, e.Attempt, r.placedOn(e.Job, e.Attempt))
	case state.EventStarted:
		return fmt.Sprintf("%s: attempt %d runs", job, e.Attempt)
	case state.EventStopping:
		return fmt.Sprintf("%s: attempt %d is stopping%s", job, e.Attempt, reason)
	case state.EventAttemptEnded:
		return fmt.Sprintf("%s: attempt %d ended (%s)%s", job, e.Attempt, e.Class, reason)
	case state.EventSucceeded:
		return job + " succeeded"
	case state.EventFailed:
		return fmt.Sprintf("%s failed with exit code %d%s", job, e.ExitCode, reason)
	case state.EventCancelled:
		return job + " was cancelled" + reason
	case state.EventHeld, state.EventReleased, state.EventPriority:
		return job + " " + strings.TrimPrefix(reason, ": ")
	case state.EventNodeRegistered:
		return node + " has registered" + reason
	case state.EventNodeDraining:
		return node + " is drained by " + e.User + reason
	case state.EventNodeUndrained:
		return node + " is no longer drained, says " + e.User
	case state.EventNodeLost:
		return node + " is lost" + reason
	case state.EventNodeRemoved:
		return node + " was removed by " + e.User
	case state.EventNodeLabelled:
		return node + " was labelled by " + e.User + reason
	}
	return strings.TrimPrefix(reason, ": ")
}

// placedOn names the nodes of an attempt, the first few of many; "" once they are forgotten.
func (r *Reader) placedOn(job muster.JobID, attempt uint32) string {
	const shown = 8
	var names []string
	for a := range r.snapshot.AllocsOfAttempt(job, attempt) {
		n, ok := r.snapshot.Node(a.Node)
		if !ok || len(names) > 0 && names[len(names)-1] == n.Name {
			continue
		}
		if len(names) == shown {
			names = append(names, "…")
			break
		}
		names = append(names, n.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return " on " + strings.Join(names, " ")
}

// EventJSON is something that happened.
type EventJSON struct {
	Index   uint64    `json:"index"` // of the log entry that made it, and its place in it: together they name it, and grow
	Nth     uint32    `json:"nth"`
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"` // job.submitted, job.placed, job.started, …, node.lost, …
	Job     *uint64   `json:"job"`
	Name    string    `json:"name,omitempty"` // the job's
	User    string    `json:"user,omitempty"` // whose job it is; of a node's event, who did it
	Queue   string    `json:"queue,omitempty"`
	Attempt uint32    `json:"attempt,omitempty"`
	Node    string    `json:"node,omitempty"`
	Class   string    `json:"class,omitempty"`
	Text    string    `json:"text"` // one sentence for people
}

// EventJSONOf gives an event's JSON form.
func EventJSONOf(e *EventInfo) EventJSON {
	out := EventJSON{
		Index:   e.GetIndex(),
		Nth:     e.GetNth(),
		Time:    time.UnixMilli(e.GetTime()).UTC(),
		Kind:    e.GetKind(),
		Name:    e.GetName(),
		User:    e.GetUser(),
		Queue:   e.GetQueue(),
		Attempt: e.GetAttempt(),
		Node:    e.GetNode(),
		Class:   e.GetClass(),
		Text:    e.GetText(),
	}
	if id := e.GetJob(); id != 0 {
		out.Job = &id
	}
	return out
}

// EventsJSON gives events' JSON form.
func EventsJSON(events []*EventInfo) []EventJSON {
	out := make([]EventJSON, len(events))
	for i, e := range events {
		out[i] = EventJSONOf(e)
	}
	return out
}
