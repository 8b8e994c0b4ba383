package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Record is one line of an evidence file; one of its fields is set.
type Record struct {
	Run      *Run      `json:"run,omitempty"`
	Call     *Call     `json:"call,omitempty"`
	Event    *Event    `json:"event,omitempty"`
	Beat     *Beat     `json:"beat,omitempty"`
	Digest   *Digest   `json:"digest,omitempty"`
	Fault    *Fault    `json:"fault,omitempty"`
	Probe    *Probe    `json:"probe,omitempty"`
	Final    *Final    `json:"final,omitempty"`
	Leftover *Leftover `json:"leftover,omitempty"`
}

// Add takes a record into the history.
func (h *History) Add(r Record) {
	switch {
	case r.Run != nil:
		h.Run = *r.Run
	case r.Call != nil:
		h.Calls = append(h.Calls, *r.Call)
	case r.Event != nil:
		h.Events = append(h.Events, *r.Event)
	case r.Beat != nil:
		h.Beats = append(h.Beats, *r.Beat)
	case r.Digest != nil:
		h.Digests = append(h.Digests, *r.Digest)
	case r.Fault != nil:
		h.Faults = append(h.Faults, *r.Fault)
	case r.Probe != nil:
		h.Probes = append(h.Probes, *r.Probe)
	case r.Final != nil:
		h.Final = *r.Final
	case r.Leftover != nil:
		h.Leftovers = append(h.Leftovers, *r.Leftover)
	}
}

// Recorder writes records as they happen, one JSON line each. Many may use it at once.
type Recorder struct {
	mu  sync.Mutex
	out *json.Encoder
	err error
}

// NewRecorder gives a recorder that writes each line to w at once: what was recorded before a crash is there after it.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{out: json.NewEncoder(w)} }

// Add writes one record. The first error is kept for Err.
func (r *Recorder) Add(record Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = r.out.Encode(record)
	}
}

// Err says whether something could not be written.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Write writes the whole history, one JSON line for each record.
func (h *History) Write(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	r := NewRecorder(buffered)
	r.Add(Record{Run: &h.Run})
	for i := range h.Calls {
		r.Add(Record{Call: &h.Calls[i]})
	}
	for i := range h.Events {
		r.Add(Record{Event: &h.Events[i]})
	}
	for i := range h.Beats {
		r.Add(Record{Beat: &h.Beats[i]})
	}
	for i := range h.Digests {
		r.Add(Record{Digest: &h.Digests[i]})
	}
	for i := range h.Faults {
		r.Add(Record{Fault: &h.Faults[i]})
	}
	for i := range h.Probes {
		r.Add(Record{Probe: &h.Probes[i]})
	}
	for i := range h.Leftovers {
		r.Add(Record{Leftover: &h.Leftovers[i]})
	}
	r.Add(Record{Final: &h.Final})
	if r.Err() != nil {
		return r.Err()
	}
	return buffered.Flush()
}

// Read adds the records of an evidence file. A last line that was cut off is left out; any other bad line is an error.
func (h *History) Read(from io.Reader) error {
	in := bufio.NewReader(from)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return err
		}
		var r Record
		switch bad := json.Unmarshal(line, &r); {
		case len(line) == 0:
			return nil
		case bad == nil:
			h.Add(r)
		case err == nil:
			return fmt.Errorf("evidence, line %d: %w", n, bad)
		}
		if err == io.EOF {
			return nil
		}
	}
}
