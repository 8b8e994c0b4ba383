package simulation

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// world is everything: one goroutine, one heap of events, one seed. A step is one event handled.
type world struct {
	plan  *Plan
	bugs  Bugs
	now   time.Duration
	queue heap
	seq   uint64
	steps int

	net      *network
	wire     *proc // to which what is on its way happens: it never ends
	servers  []*server
	machines []*machine
	clients  *clients
	judge    *judge
	counts   Counts

	tell func(at time.Duration, who, what string) // nil: nobody listens
}

// event is something that will happen to a process, unless that has ended by then.
type event struct {
	at   time.Duration
	seq  uint64
	proc *proc
	life int
	do   func()
}

// heap is a binary heap of events by time, then in the order in which they were made.
type heap []event

func (h heap) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}

func (h *heap) push(e event) {
	*h = append(*h, e)
	q := *h
	for i := len(q) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			break
		}
		q[i], q[parent] = q[parent], q[i]
		i = parent
	}
}

func (h *heap) pop() event {
	q := *h
	first := q[0]
	last := len(q) - 1
	q[0] = q[last]
	q[last] = event{}
	q = q[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			break
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
	*h = q
	return first
}

// host is a machine: its clock goes at a rate of its own, and it may be off or suspended.
type host struct {
	w      *world
	name   string
	number int // in the network
	rand   *rand.Rand
	rate   float64 // seconds that its clocks count in a second of the world
	up     bool
	asleep bool
	woke   time.Duration // when it last woke
}

func (w *world) newHost(name string, number int, rate float64) *host {
	return &host{w: w, name: name, number: number, rate: rate, up: true, rand: w.random(name)}
}

// random is a source of its own for each name, so that what one draws leaves the others' draws alone.
func (w *world) random(name string) *rand.Rand {
	sum := fnv.New64a()
	fmt.Fprint(sum, name, w.plan.Noise)
	return rand.New(rand.NewPCG(w.plan.Seed, sum.Sum64()))
}

// clock is the host's CLOCK_BOOTTIME.
func (h *host) clock() time.Duration {
	return 1000*time.Second + time.Duration(float64(h.w.now)*h.rate)
}

// wall is its idea of the time of day.
func (h *host) wall() time.Time { return time.Unix(1_800_000_000, 0).Add(h.clock()) }

// proc is a process of a host. What happens to it while it is stopped waits until it goes on; what was to happen to an earlier
// life of it never does.
type proc struct {
	host   *host
	name   string
	life   int
	alive  bool
	asleep bool
	parked []event
}

func (p *proc) sleeps() bool { return p.asleep || p.host.asleep }

// at lets something happen to the process, after a time of the world.
func (p *proc) at(d time.Duration, do func()) {
	w := p.host.w
	w.seq++
	w.queue.push(event{w.now + d, w.seq, p, p.life, do})
}

// after is at, by the host's clock.
func (p *proc) after(d time.Duration, do func()) { p.at(time.Duration(float64(d)/p.host.rate), do) }

// begin gives the process a new life.
func (p *proc) begin() {
	p.life++
	p.alive, p.asleep, p.parked = true, false, nil
}

func (p *proc) end() {
	p.life++
	p.alive, p.asleep, p.parked = false, false, nil
}

// wake lets happen what waited.
func (p *proc) wake() {
	if p.sleeps() {
		return
	}
	w := p.host.w
	for _, e := range p.parked {
		w.seq++
		e.at, e.seq = w.now, w.seq
		w.queue.push(e)
	}
	p.parked = nil
}

// step handles one event; false: there is none before until.
func (w *world) step(until time.Duration) bool {
	if len(w.queue) == 0 || w.queue[0].at > until {
		w.now = until
		return false
	}
	e := w.queue.pop()
	w.now = e.at
	w.steps++
	switch {
	case e.life != e.proc.life:
	case e.proc.sleeps():
		e.proc.parked = append(e.proc.parked, e)
	default:
		e.do()
	}
	return true
}

// say adds a line to the story.
func (w *world) say(who, format string, args ...any) {
	if w.tell != nil {
		w.tell(w.now, who, fmt.Sprintf(format, args...))
	}
}

// between draws a time.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(r.Int64N(int64(high-low)))
}

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }
