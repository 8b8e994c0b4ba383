package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestALeaderStuckInATransferEnds(t *testing.T) {
	var now Boot = 1
	var ended []error
	g := &transferGuard{limit: time.Second, fatal: func(err error) { ended = append(ended, err) }, now: func() Boot { return now }}
	g.note(raft.ErrLeadershipTransferInProgress)
	now += Boot(time.Second)
	g.note(nil) // it got through
	g.note(raft.ErrLeadershipTransferInProgress)
	now += Boot(time.Second)
	g.note(raft.ErrLeadershipTransferInProgress)
	if len(ended) != 0 {
		t.Fatal("ended before two election timeouts of refusals")
	}
	now++
	g.note(raft.ErrLeadershipTransferInProgress)
	g.note(raft.ErrLeadershipTransferInProgress)
	if len(ended) != 1 {
		t.Fatalf("ended %d times, want once", len(ended))
	}
}

// gatedRaft takes entries and answers them when told.
type gatedRaft struct {
	entries chan []byte
	answer  chan error
}

type gatedFuture struct {
	raft.ApplyFuture
	answer chan error
}

func (f gatedFuture) Error() error  { return <-f.answer }
func (f gatedFuture) Response() any { return nil }
func (f gatedFuture) Index() uint64 { return 1 }

func (r *gatedRaft) apply(data []byte, _ time.Duration) raft.ApplyFuture {
	r.entries <- data
	return gatedFuture{answer: r.answer}
}

func TestWhatWaitsSharesTheNextEntry(t *testing.T) {
	r := &gatedRaft{entries: make(chan []byte, 100), answer: make(chan error)}
	p := newProposer(r.apply, func() error { return nil }, time.Now, &transferGuard{limit: time.Hour, now: bootTime})
	var flying []*proposal
	start := func() {
		q, err := p.start(submission("job"))
		if err != nil {
			t.Fatal(err)
		}
		flying = append(flying, q)
	}
	for range maxFlights { // a lone command waits for nothing
		start()
		<-r.entries
	}
	for range 20 {
		start()
	}
	select {
	case <-r.entries:
		t.Fatal("more entries in flight than allowed")
	default:
	}
	r.answer <- raft.ErrNotLeader
	if one, twenty := len(flying[0].data), len(<-r.entries); twenty < 20*one/2 {
		t.Errorf("the next entry has %d bytes; twenty commands of %d waited", twenty, one)
	}
	r.answer <- raft.ErrLeadershipLost
	r.answer <- errors.New("whatever")
	for _, q := range flying {
		if out := q.wait(t.Context()); out.err == nil {
			t.Error("a failed entry gave a result")
		}
	}
	p.close()
	if _, err := p.start(submission("late")); err == nil {
		t.Error("taken after the end")
	}
}

// Followers hear of a commit at once: by the next entry where one waits, else by an empty one.
func TestALoneCommitIsToldToFollowers(t *testing.T) {
	r := &gatedRaft{entries: make(chan []byte, 100), answer: make(chan error)}
	told := make(chan struct{}, 100)
	tell := func() error { told <- struct{}{}; return nil }
	p := newProposer(r.apply, tell, time.Now, &transferGuard{limit: time.Hour, now: bootTime})
	defer p.close()
	start := func() {
		if _, err := p.start(submission("job")); err != nil {
			t.Fatal(err)
		}
	}
	for range maxFlights {
		start()
		<-r.entries
	}
	start()
	r.answer <- nil // the one that waits goes out, and tells
	<-r.entries
	select {
	case <-told:
		t.Error("an empty entry beside one that tells by itself")
	default:
	}
	for range maxFlights {
		r.answer <- nil
	}
	<-told
}
