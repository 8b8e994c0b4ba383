package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

func TestTheHubWakesOnlyWhoAsked(t *testing.T) {
	h := newHub()
	h.publish(state.New().Snapshot(), 0, state.Changed{}, true)
	awake := func(wake <-chan struct{}) bool {
		select {
		case <-wake:
			return true
		default:
			return false
		}
	}
	job, stopJob := h.watch([]muster.JobID{1, 2}, nil)
	node, stopNode := h.watch(nil, []muster.NodeID{7})
	all, stopAll := h.watch(nil, nil)
	feed, _ := h.subscribe()
	publish := func(index muster.Index, c state.Changed) { h.publish(state.New().Snapshot(), index, c, false) }

	publish(1, state.Changed{Jobs: []muster.JobID{2}})
	publish(2, state.Changed{Jobs: []muster.JobID{1, 3}})
	if !awake(job) || awake(job) || awake(node) || !awake(all) {
		t.Error("a change of jobs must wake, once, who watches them, and who watches everything")
	}
	publish(3, state.Changed{Nodes: []muster.NodeID{7}})
	if awake(job) || !awake(node) {
		t.Error("a change of a node must wake who watches it")
	}
	if _, changed, _ := feed.take(); !slices.Equal(changed.Jobs, []muster.JobID{1, 2, 3}) || !slices.Equal(changed.Nodes, []muster.NodeID{7}) {
		t.Errorf("the feed gathered %+v", changed)
	}
	h.publish(state.New().Snapshot(), 4, state.Changed{}, true)
	if !awake(job) || !awake(node) {
		t.Error("a restored snapshot must wake everybody")
	}
	stopJob()
	stopNode()
	stopAll()
	feed.close()
	if len(h.jobs)+len(h.nodes)+len(h.all)+len(h.feeds) != 0 {
		t.Error("who stopped is still known")
	}
}

func TestWaitingForAnIndexEndsWhenItIsReached(t *testing.T) {
	h := newHub()
	h.publish(state.New().Snapshot(), 5, state.Changed{}, true)
	if err := h.waitApplied(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- h.waitApplied(t.Context(), 7) }()
	for index := muster.Index(6); ; index++ {
		select {
		case err := <-done:
			if err != nil || index < 7 {
				t.Fatalf("ended before %d: %v", index, err)
			}
			return
		case <-time.After(time.Millisecond):
			h.publish(state.New().Snapshot(), index, state.Changed{}, false)
		}
	}
}

// BenchmarkPublishToWatchers publishes changes of one job while others are watched: the cost must not grow with them.
func BenchmarkPublishToWatchers(b *testing.B) {
	for _, watchers := range []int{10, 10_000} {
		b.Run(fmt.Sprint(watchers), func(b *testing.B) {
			h := newHub()
			snapshot := state.New().Snapshot()
			h.publish(snapshot, 0, state.Changed{}, true)
			for i := range watchers {
				_, stop := h.watch([]muster.JobID{muster.JobID(i)}, nil)
				defer stop()
			}
			changed := state.Changed{Jobs: []muster.JobID{1}}
			for b.Loop() {
				h.publish(snapshot, 1, changed, false)
			}
		})
	}
}
