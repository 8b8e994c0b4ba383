package exec

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/musterhpc/muster"
)

// The protocol between an agent and a supervisor, over a unix stream socket that only its own user (or root) may use. Each
// frame is a length (4 bytes, big endian) and so many bytes of one JSON object, frame. Both sides send a hello first. Then
// the agent sends requests, each with an id of its own; the supervisor answers each once, in any order, and sends an event
// whenever a task changes. An agent of one release talks to the supervisors of every earlier one of the same major
// version, so this is frozen per major: names are never changed or used again, new ones may be added and are ignored by who
// doesn't know them. testdata/protocol-1.jsonl holds frames of every release; a test reads them.

const (
	protocolVersion = 1
	maxFrame        = 8 << 20 // a task's script and environment are at most a few hundred KiB
	socketName      = "supervisor.sock"
	lockName        = "supervisor.lock"
)

// frame is everything that travels. Which fields are set says what it is.
type frame struct {
	Hello *hello `json:"hello,omitempty"`

	ID      uint64           `json:"id,omitempty"`
	Method  string           `json:"method,omitempty"` // a request
	Task    *Task            `json:"task,omitempty"`   // of prepare
	Alloc   *muster.AllocID  `json:"alloc,omitempty"`  // of start and stop
	Stop    *muster.Stop     `json:"stop,omitempty"`   // of stop
	Leases  []leaseEnd       `json:"leases,omitempty"` // of extend
	Allocs  []muster.AllocID `json:"allocs,omitempty"` // of forget; in the answer to extend: those alive
	Tasks   []Status         `json:"tasks,omitempty"`  // in the answer to list
	Failure *failure         `json:"failure,omitempty"`

	Event *Status `json:"event,omitempty"`
}

// The methods.
const (
	methodPrepare = "prepare"
	methodStart   = "start"
	methodStop    = "stop"
	methodExtend  = "extend"
	methodList    = "list"
	methodForget  = "forget"
	methodQuit    = "quit"
)

type hello struct {
	Protocol int    `json:"protocol"`
	Pid      int    `json:"pid,omitempty"`   // the supervisor's
	Start    uint64 `json:"start,omitempty"` // its start time in clock ticks since boot
	Boot     string `json:"boot,omitempty"`  // boot id
}

type leaseEnd struct {
	Alloc muster.AllocID `json:"alloc"`
	End   BootTime       `json:"end"`
}

// failure is an error as it travels.
type failure struct {
	Kind    muster.Kind `json:"kind"`
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
	Prepare bool        `json:"prepare,omitempty"` // it is a PrepareError
}

func failureOf(err error) *failure {
	switch e := err.(type) {
	case nil:
		return nil
	case *PrepareError:
		return &failure{Kind: muster.KindError, Message: e.Message, Prepare: true}
	case *muster.Error:
		return &failure{Kind: e.Kind, Message: e.Message, Hint: e.Hint}
	}
	return &failure{Kind: muster.KindOf(err), Message: err.Error()}
}

func (f *failure) error() error {
	switch {
	case f == nil:
		return nil
	case f.Prepare:
		return &PrepareError{Message: f.Message}
	}
	return &muster.Error{Kind: f.Kind, Message: f.Message, Hint: f.Hint}
}

func writeFrame(w io.Writer, f *frame) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("a message of %d bytes to or from a supervisor is over the limit of %d", len(body), maxFrame)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...))
	return err
}

func readFrame(r io.Reader) (*frame, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return nil, fmt.Errorf("a message of %d bytes to or from a supervisor is over the limit of %d", n, maxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	f := &frame{}
	if err := json.Unmarshal(body, f); err != nil {
		return nil, fmt.Errorf("a message to or from a supervisor is not readable: %w", err)
	}
	return f, nil
}
