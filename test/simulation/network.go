package simulation

import (
	"errors"
	"math/rand/v2"
	"time"
)

// network carries datagrams, which may be lost, doubled and overtaken, and streams, which keep their order and stall or break.
type network struct {
	w     *world
	rand  *rand.Rand
	links map[[2]int]*link
	open  []*stream // in the order they were opened
}

// link is one direction between two hosts, with what faults do to it now.
type link struct {
	rand   *rand.Rand
	cut    int           // faults that cut it
	loss   int           // percent
	double int           // percent
	delay  time.Duration // more, at most
}

func newNetwork(w *world) *network {
	return &network{w: w, rand: w.random("network"), links: map[[2]int]*link{}}
}

func (n *network) link(from, to *host) *link {
	key := [2]int{from.number, to.number}
	l := n.links[key]
	if l == nil {
		l = &link{rand: n.w.random(from.name + ">" + to.name)}
		n.links[key] = l
	}
	return l
}

func (l *link) latency() time.Duration {
	d := between(l.rand, 200*time.Microsecond, 2*time.Millisecond)
	if l.delay > 0 {
		d += between(l.rand, 0, l.delay)
	}
	return d
}

// local says whether a host speaks to itself: nothing cuts that.
func local(a, b *host) bool { return a == b }

// datagram delivers do to a process, in whatever life it is then; or not, or twice.
func (n *network) datagram(from, to *proc, do func()) {
	if local(from.host, to.host) {
		n.deliver(to, 20*time.Microsecond, do)
		return
	}
	l := n.link(from.host, to.host)
	if l.cut > 0 || l.loss > 0 && chance(l.rand, l.loss) {
		n.w.counts.Lost++
		return
	}
	n.deliver(to, l.latency(), do)
	if l.double > 0 && chance(l.rand, l.double) {
		n.w.counts.Doubled++
		n.deliver(to, l.latency()+l.latency(), do)
	}
}

// deliver is at for whatever life the process is in then.
func (n *network) deliver(to *proc, d time.Duration, do func()) {
	n.w.wire.at(d, func() {
		switch {
		case !to.alive || !to.host.up:
		case to.sleeps():
			to.parked = append(to.parked, event{proc: to, life: to.life, do: do})
		default:
			do()
		}
	})
}

var errTimeout = errors.New("it did not answer in time")

// call asks a process something. The request may be handled twice, or handled and its answer lost; done is called once, unless
// the caller has ended.
func (n *network) call(from, to *proc, limit time.Duration, handle func(reply func(any, error)), done func(any, error)) {
	over := false
	finish := func(answer any, err error) {
		if !over {
			over = true
			done(answer, err)
		}
	}
	life := from.life
	n.datagram(from, to, func() {
		handle(func(answer any, err error) {
			n.datagram(to, from, func() {
				if from.life == life {
					finish(answer, err)
				}
			})
		})
	})
	from.after(limit, func() { finish(nil, errTimeout) })
}

// stream is a connection between two processes: each direction keeps its order. While a link is cut what was sent waits; after a
// while both ends give the connection up.
type stream struct {
	n      *network
	ends   [2]*proc
	lives  [2]int
	closed [2]bool
	out    [2][]func() // from end 0 to 1, and from 1 to 0
	pumped [2]bool
	stall  [2]time.Duration // since when nothing gets through; 0 = it does
	over   [2]func()        // called at an end when the connection is over for it
}

const (
	stallLook = 100 * time.Millisecond
	stallMax  = 8 * time.Second // how long a connection may carry nothing
)

// connect opens a stream, or says later why not.
func (n *network) connect(from, to *proc, done func(*stream)) {
	there, back := n.link(from.host, to.host), n.link(to.host, from.host)
	switch {
	case there.cut > 0 || back.cut > 0 || !to.host.up:
		from.after(time.Second, func() { done(nil) })
		return
	case !to.alive:
		from.after(2*time.Millisecond, func() { done(nil) })
		return
	}
	s := &stream{n: n, ends: [2]*proc{from, to}}
	life := to.life
	from.at(there.latency()+back.latency(), func() {
		if to.life != life || !to.alive {
			done(nil)
			return
		}
		s.lives = [2]int{from.life, to.life}
		n.open = append(n.open, s)
		done(s)
	})
}

// send puts something on the stream; end is who sends.
func (s *stream) send(end int, do func()) {
	if s.closed[end] {
		return
	}
	s.out[end] = append(s.out[end], do)
	s.pump(end, s.n.link(s.ends[end].host, s.ends[1-end].host).latency())
}

// pump delivers what is first in line, when it is time.
func (s *stream) pump(end int, d time.Duration) {
	if s.pumped[end] || len(s.out[end]) == 0 {
		return
	}
	s.pumped[end] = true
	w := s.n.w
	w.wire.at(d, func() {
		s.pumped[end] = false
		to := s.ends[1-end]
		l := s.n.link(s.ends[end].host, to.host)
		if s.closed[1-end] || to.life != s.lives[1-end] {
			s.out[end] = nil
			return
		}
		if l.cut > 0 || !to.host.up || to.sleeps() {
			if s.stall[end] == 0 {
				s.stall[end] = w.now
			}
			if w.now-s.stall[end] > stallMax {
				s.out[end] = nil
				s.close(end)
				s.close(1 - end)
				return
			}
			s.pump(end, stallLook)
			return
		}
		s.stall[end] = 0
		first := s.out[end][0]
		s.out[end] = s.out[end][1:]
		first()
		s.pump(end, l.latency()/4)
	})
}

// end closes the stream at one end; the other learns of it after all that was sent, or when it misses what should come.
func (s *stream) end(end int) {
	if s.closed[end] {
		return
	}
	other := 1 - end
	if s.ends[end].host.up {
		s.send(end, func() { s.close(other) })
	} else {
		p, life := s.ends[other], s.lives[other]
		s.n.w.wire.at(stallMax, func() {
			if p.life == life {
				s.close(other)
			}
		})
	}
	s.close(end)
}

func (s *stream) close(end int) {
	if s.closed[end] {
		return
	}
	s.closed[end] = true
	if s.closed[1-end] {
		s.n.forget(s)
	}
	p := s.ends[end]
	if s.over[end] != nil && p.life == s.lives[end] && p.alive {
		p.at(0, s.over[end])
	}
}

func (n *network) forget(s *stream) {
	for i, o := range n.open {
		if o == s {
			n.open = append(n.open[:i], n.open[i+1:]...)
			return
		}
	}
}

// died closes the streams of a process that has just ended.
func (n *network) died(p *proc) {
	for _, s := range append([]*stream(nil), n.open...) {
		for end := range s.ends {
			if s.ends[end] == p && s.lives[end] != p.life {
				s.end(end)
			}
		}
	}
}
