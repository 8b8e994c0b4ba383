package check

import (
	"fmt"
	"time"

	"github.com/musterhpc/muster"
)

const second = Instant(time.Second)

func number(n int) *int { return &n }

// calm is a run in which all went well, told in seconds. Job 1 (pair) is a gang of two ranks on w1 and w2. Job 2 (lone)
// lost its first attempt with w1, at 30 s, and ran again on w2. Job 3 (unwanted) was cancelled while it waited, job 4
// (stopped) while it ran. A client submits once a second all along, and a probe follows the one fault.
func calm() *History {
	h := &History{Run: Run{Seed: 7, End: 200 * second, Servers: []string{"s1", "s2", "s3"}, Replay: "make chaos SEED=7"}}
	lease := 15 * time.Second

	h.submit("anna", 1, "pair", 1)
	h.submit("anna", 2, "lone", 2)
	h.submit("anna", 3, "unwanted", 3)
	h.submit("anna", 4, "stopped", 4)
	h.cancel("anna", 5, 3)
	h.cancel("anna", 20, 4)

	h.run("1-1", 1, 1, 0, "w1", 0, 6, 16)
	h.run("1-2", 1, 1, 1, "w2", 0, 6, 16)
	h.run("1-3", 2, 1, 0, "w1", 1, 7, 0)
	h.run("1-4", 4, 1, 0, "w2", 1, 8, 20.1)
	h.run("1-5", 2, 2, 0, "w2", 2, 50, 60)
	h.Faults = []Fault{{Kind: "machine killed", Start: 30 * second, End: 60 * second, Targets: []string{"w1"}}}
	for i := range h.Events {
		if e := &h.Events[i]; e.Kind == Ended && e.Alloc == "1-4" {
			e.Class, e.Signal = "cancelled", 15
		}
	}

	h.get("bert", 9, 1, 9, Seen{State: "running", Attempt: 1})
	h.get("bert", 12, 3, 12, Seen{State: "cancelled", Class: "cancelled"})
	h.get("bert", 21, 4, 21, Seen{State: "cancelled", Attempt: 1, Class: "cancelled"})
	h.get("bert", 55, 2, 55, Seen{State: "running", Attempt: 2})
	h.get("bert", 61, 2, 61, Seen{State: "succeeded", Attempt: 2, ExitCode: number(0)})
	for i := 100; i < 295; i++ {
		at := float64(i - 98)
		h.submit("clock", at, fmt.Sprintf("tick-%d", i), muster.JobID(i))
		h.Final.Jobs = append(h.Final.Jobs, Job{ID: muster.JobID(i), Name: fmt.Sprintf("tick-%d", i), State: "succeeded", Attempt: 1, Count: 1, Lease: lease})
	}
	h.Probes = []Probe{{Job: 294, Asked: 150 * second, Ran: 151 * second}}
	h.Digests = []Digest{
		{Server: "s1", Time: 70 * second, Epoch: 1, Index: 1000, Digest: "ab", Level: 1},
		{Server: "s2", Time: 71 * second, Epoch: 1, Index: 1000, Digest: "ab", Level: 1},
	}
	h.Final.Time = 120 * second
	h.Final.Jobs = append(h.Final.Jobs,
		Job{ID: 1, Name: "pair", State: "succeeded", Attempt: 1, Count: 2, Lease: lease, ExitCode: number(0), Attempts: []Attempt{{Number: 1}},
			Ranks: []Rank{rank("1-1", 0, 1, "w1", 0), rank("1-2", 1, 1, "w2", 0)}},
		Job{ID: 2, Name: "lone", State: "succeeded", Attempt: 2, Count: 1, Lease: lease, ExitCode: number(0),
			Attempts: []Attempt{{Number: 1, Class: "node"}, {Number: 2}},
			Ranks:    []Rank{{Alloc: "1-3", Attempt: 1, Node: "w1", State: "ended", Slots: []int{1}, Class: "node"}, rank("1-5", 0, 2, "w2", 2)}},
		Job{ID: 3, Name: "unwanted", State: "cancelled", Count: 1, Lease: lease, Class: "cancelled"},
		Job{ID: 4, Name: "stopped", State: "cancelled", Attempt: 1, Count: 1, Lease: lease, Class: "cancelled", Attempts: []Attempt{{Number: 1, Class: "cancelled"}},
			Ranks: []Rank{{Alloc: "1-4", Attempt: 1, Node: "w2", State: "ended", Slots: []int{1}, Class: "cancelled", Signal: 15}}})
	return h
}

func seconds(s float64) Instant { return Instant(s * 1e9) }

func rank(alloc string, rank int, attempt uint32, node string, slot int) Rank {
	return Rank{Alloc: alloc, Rank: rank, Attempt: attempt, Node: node, State: "ended", Slots: []int{slot}, ExitCode: number(0)}
}

// call adds a call that began 50 ms before its end.
func (h *History) call(c Call, at float64) *Call {
	c.Start, c.End = seconds(at-0.05), seconds(at)
	if c.Outcome == "" {
		c.Outcome = OK
	}
	if c.Session == "" {
		c.Session = c.Client
	}
	h.Calls = append(h.Calls, c)
	return &h.Calls[len(h.Calls)-1]
}

func (h *History) submit(client string, at float64, name string, id muster.JobID) *Call {
	return h.call(Call{Client: client, Op: OpSubmit, Request: "r-" + name, Names: []string{name}, Jobs: []muster.JobID{id}}, at)
}

func (h *History) cancel(client string, at float64, id muster.JobID) *Call {
	return h.call(Call{Client: client, Op: OpCancel, Request: fmt.Sprint("c-", id, "-", at), Jobs: []muster.JobID{id}}, at)
}

// get adds a read that was answered from an index of 100 for each second.
func (h *History) get(client string, at float64, id muster.JobID, version float64, seen Seen) *Call {
	seen.Job = id
	return h.call(Call{Client: client, Op: OpGet, Jobs: []muster.JobID{id}, Version: muster.Version{Epoch: 1, Index: muster.Index(version * 100)},
		Seen: []Seen{seen}}, at)
}

// run tells of an allocation whose task beats twice a second. It ends with exit code 0 at an instant, or, with 0, goes down
// with its machine at 30 s, of which nothing but the last beat tells; the agent writes that end when it is back.
func (h *History) run(alloc string, job muster.JobID, attempt uint32, rank int, node string, slot int, from, to float64) {
	e := Event{Node: node, Session: "a1", Boot: "b1", Alloc: alloc, Job: job, Attempt: attempt, Rank: rank, Slots: []int{slot}, PID: 1000 + int(from*10) + rank}
	add := func(kind EventKind, at float64) *Event {
		e.Kind, e.Time = kind, seconds(at)
		h.Events = append(h.Events, e)
		return &h.Events[len(h.Events)-1]
	}
	add(Ready, from-0.2)
	add(Intent, from)
	add(Started, from+0.01)
	last := to
	if to == 0 {
		last = 30
	}
	for at := from + 0.02; at < last; at += 0.5 {
		h.beat(e, at)
	}
	if to == 0 {
		add(Ended, 60.5).Class = "node"
		return
	}
	add(Ended, to+0.1).Gone = seconds(to)
}

func (h *History) beat(e Event, at float64) {
	h.Beats = append(h.Beats, Beat{Time: seconds(at), Node: e.Node, Machine: e.Machine, Job: e.Job, Attempt: e.Attempt, Rank: e.Rank, PID: e.PID, Alloc: e.Alloc})
}

// edit changes the events of a kind of one allocation.
func (h *History) edit(alloc string, kind EventKind, change func(*Event)) {
	for i := range h.Events {
		if e := &h.Events[i]; e.Alloc == alloc && e.Kind == kind {
			change(e)
		}
	}
}

func (h *History) job(id muster.JobID) *Job {
	for i := range h.Final.Jobs {
		if h.Final.Jobs[i].ID == id {
			return &h.Final.Jobs[i]
		}
	}
	return nil
}
