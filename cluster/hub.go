package cluster

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// hub holds the newest published state and wakes only who asked for what changed. Publishing costs the changed keys, not the
// watchers.
type hub struct {
	current atomic.Pointer[published]

	mu      sync.Mutex
	jobs    map[muster.JobID]map[*watcher]struct{}
	nodes   map[muster.NodeID]map[*watcher]struct{}
	all     map[*watcher]struct{}
	feeds   map[*feed]struct{}
	waiting []applyWaiter
}

// published is the state after one entry.
type published struct {
	snapshot *state.Snapshot
	index    muster.Index
}

type watcher struct {
	wake  chan struct{}
	jobs  []muster.JobID
	nodes []muster.NodeID
}

type applyWaiter struct {
	index   muster.Index
	reached chan struct{}
}

func newHub() *hub {
	return &hub{
		jobs:  map[muster.JobID]map[*watcher]struct{}{},
		nodes: map[muster.NodeID]map[*watcher]struct{}{},
		all:   map[*watcher]struct{}{},
		feeds: map[*feed]struct{}{},
	}
}

// publish makes s the newest state. everything: it came from a snapshot file, and any row may differ.
func (h *hub) publish(s *state.Snapshot, index muster.Index, changed state.Changed, everything bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current.Store(&published{snapshot: s, index: index})
	for w := range h.all {
		w.poke()
	}
	if everything {
		for _, watchers := range h.jobs {
			pokeAll(watchers)
		}
		for _, watchers := range h.nodes {
			pokeAll(watchers)
		}
	}
	for _, id := range changed.Jobs {
		pokeAll(h.jobs[id])
	}
	for _, id := range changed.Nodes {
		pokeAll(h.nodes[id])
	}
	for f := range h.feeds {
		f.add(changed, everything)
	}
	left := h.waiting[:0]
	for _, w := range h.waiting {
		if w.index <= index {
			close(w.reached)
		} else {
			left = append(left, w)
		}
	}
	clear(h.waiting[len(left):])
	h.waiting = left
}

func pokeAll(watchers map[*watcher]struct{}) {
	for w := range watchers {
		w.poke()
	}
}

func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// newest is the newest published state.
func (h *hub) newest() *published { return h.current.Load() }

// watch wakes at changes of the jobs or nodes; without any, at every change.
func (h *hub) watch(jobs []muster.JobID, nodes []muster.NodeID) (<-chan struct{}, func()) {
	w := &watcher{wake: make(chan struct{}, 1), jobs: slices.Clone(jobs), nodes: slices.Clone(nodes)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(jobs) == 0 && len(nodes) == 0 {
		h.all[w] = struct{}{}
	}
	for _, id := range w.jobs {
		enlist(h.jobs, id, w)
	}
	for _, id := range w.nodes {
		enlist(h.nodes, id, w)
	}
	return w.wake, func() { h.unwatch(w) }
}

func enlist[K comparable](in map[K]map[*watcher]struct{}, key K, w *watcher) {
	if in[key] == nil {
		in[key] = map[*watcher]struct{}{}
	}
	in[key][w] = struct{}{}
}

func delist[K comparable](in map[K]map[*watcher]struct{}, key K, w *watcher) {
	delete(in[key], w)
	if len(in[key]) == 0 {
		delete(in, key)
	}
}

func (h *hub) unwatch(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, w)
	for _, id := range w.jobs {
		delist(h.jobs, id, w)
	}
	for _, id := range w.nodes {
		delist(h.nodes, id, w)
	}
}

// waitApplied waits until the published state has reached index.
func (h *hub) waitApplied(ctx context.Context, index muster.Index) error {
	if h.newest().index >= index {
		return nil
	}
	h.mu.Lock()
	if h.newest().index >= index {
		h.mu.Unlock()
		return nil
	}
	w := applyWaiter{index: index, reached: make(chan struct{})}
	h.waiting = append(h.waiting, w)
	h.mu.Unlock()
	select {
	case <-w.reached:
		return nil
	case <-ctx.Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waiting = slices.DeleteFunc(h.waiting, func(o applyWaiter) bool { return o.reached == w.reached })
		return context.Cause(ctx)
	}
}

// feed gathers all changed keys for one reader that must miss none: the scheduling duty.
type feed struct {
	hub  *hub
	wake chan struct{}

	mu         sync.Mutex
	changed    state.Changed
	everything bool
}

// subscribe begins a feed; everything published after the snapshot it gives is in it.
func (h *hub) subscribe() (*feed, *state.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &feed{hub: h, wake: make(chan struct{}, 1)}
	h.feeds[f] = struct{}{}
	return f, h.newest().snapshot
}

func (f *feed) close() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	delete(f.hub.feeds, f)
}

func (f *feed) add(c state.Changed, everything bool) {
	f.mu.Lock()
	f.changed.Jobs = append(f.changed.Jobs, c.Jobs...)
	f.changed.Nodes = append(f.changed.Nodes, c.Nodes...)
	f.changed.Queues = append(f.changed.Queues, c.Queues...)
	f.everything = f.everything || everything
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take gives the newest snapshot and what changed since the last take, each key once, in order. everything: any row may have.
func (f *feed) take() (s *state.Snapshot, changed state.Changed, everything bool) {
	f.hub.mu.Lock() // so that no entry lies between the snapshot and its keys
	defer f.hub.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, everything = f.changed, f.everything
	f.changed, f.everything = state.Changed{}, false
	slices.Sort(changed.Jobs)
	slices.Sort(changed.Nodes)
	slices.Sort(changed.Queues)
	changed.Jobs, changed.Nodes, changed.Queues = slices.Compact(changed.Jobs), slices.Compact(changed.Nodes), slices.Compact(changed.Queues)
	return f.hub.newest().snapshot, changed, everything
}
