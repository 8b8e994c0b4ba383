package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// contactOf is the contact of server "a", one of so many voters, with a clock in hand.
func contactOf(voters int) (*contact, *atomic.Int64) {
	var servers []raft.Server
	for i := range voters {
		servers = append(servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(rune('a' + i))})
	}
	servers = append(servers, raft.Server{Suffrage: raft.Nonvoter, ID: "nonvoter"})
	var clock atomic.Int64
	return newContact("a", func() Boot { return Boot(clock.Load()) }, func() []raft.Server { return servers }), &clock
}

func TestContactIsTheLatestMomentThatAMajorityHasReached(t *testing.T) {
	c, clock := contactOf(5)
	c.lead(7)
	clock.Store(100)
	want := func(value Boot) {
		t.Helper()
		if got, _ := c.value(7); got != value {
			t.Fatalf("contact is %d, want %d", got, value)
		}
	}
	want(0)
	c.accepted("b", 7, 50, 0)
	want(0) // two of five
	c.accepted("nonvoter", 7, 90, 0)
	want(0) // who does not vote does not count
	c.accepted("c", 7, 40, 0)
	want(40) // a at 100, b at 50, c at 40
	c.accepted("d", 7, 60, 0)
	want(50)
	c.accepted("d", 7, 10, 0)
	want(50) // an answer that comes late takes nothing back
}

func TestContactOfAnotherTermCountsForNothing(t *testing.T) {
	c, clock := contactOf(3)
	clock.Store(100)
	c.lead(7)
	c.accepted("b", 7, 50, 0)
	c.accepted("b", 6, 99, 0)
	if got, _ := c.value(7); got != 50 {
		t.Fatalf("contact is %d, want 50: evidence of term 6 is not of term 7", got)
	}
	c.lead(8)
	if got, _ := c.value(8); got != 0 {
		t.Fatalf("contact is %d in a new term, want none", got)
	}
	c.accepted("b", 9, 70, 0) // raft sends before it announces its leadership
	c.lead(9)
	if got, _ := c.value(9); got != 70 {
		t.Fatalf("contact is %d, want 70", got)
	}
}

func TestALoneServerIsAlwaysInContact(t *testing.T) {
	c, clock := contactOf(1)
	c.lead(1)
	clock.Store(42)
	if got, _ := c.value(1); got != 42 {
		t.Fatalf("contact is %d, want now", got)
	}
}

func TestWaitingForContactIgnoresWhatWasSentBefore(t *testing.T) {
	c, clock := contactOf(3)
	c.lead(1)
	clock.Store(100)
	nudged := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() { done <- c.wait(t.Context(), 1, 100, func() { nudged <- struct{}{} }) }()
	<-nudged
	c.accepted("b", 1, 100, 0) // sent at that very moment: may have been before
	c.accepted("c", 1, 99, 0)
	clock.Store(200)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("none"))
	defer cancel()
	if err := c.wait(ctx, 1, 100, func() {}); err == nil {
		t.Fatal("old evidence satisfied a later call")
	}
	c.accepted("c", 1, 101, 0)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
