package simulation

import (
	"slices"
	"time"
)

// strike begins a fault, and has it end. One that would break what the promises are given under does nothing.
func (w *world) strike(f *Fault) {
	w.say("fault", "%s", f.describe(w.plan))
	w.counts.Faults++
	end := func(do func()) { w.wire.at(f.For, do) }
	first := func() *machine { return w.machines[f.Hosts[0]-len(w.servers)] }
	switch f.Kind {
	case CrashServer:
		for _, h := range f.Hosts {
			w.servers[h].crash()
		}
		end(func() {
			for _, h := range f.Hosts {
				if s := w.servers[h]; !s.alive {
					w.say(s.name, "starts again")
					s.start()
				}
			}
		})
	case SleepServer:
		s := w.servers[f.Hosts[0]]
		life := s.life
		s.asleep = true
		end(func() {
			if s.life == life {
				s.asleep = false
				s.wake()
			}
		})
	case StallServer:
		w.servers[f.Hosts[0]].stalled = w.now + f.For
	case SlowDisk:
		s := w.servers[f.Hosts[0]]
		s.diskSlow += time.Duration(f.Amount) * time.Millisecond
		end(func() { s.diskSlow -= time.Duration(f.Amount) * time.Millisecond })
	case Partition, CutOneWay:
		w.cut(f, 1)
		end(func() { w.cut(f, -1) })
	case LossyNetwork:
		w.everyLink(func(l *link) { l.loss += f.Amount; l.double += f.Amount })
		end(func() { w.everyLink(func(l *link) { l.loss -= f.Amount; l.double -= f.Amount }) })
	case SlowNetwork:
		d := time.Duration(f.Amount) * time.Millisecond
		w.everyLink(func(l *link) { l.delay += d })
		end(func() { w.everyLink(func(l *link) { l.delay -= d }) })
	case KillAgent, KillSupervisor, KillBoth:
		w.killProcesses(first(), f)
	case CrashMachine, FenceMachine:
		m := first()
		if !m.up {
			return
		}
		m.crash()
		boot := m.boot
		if f.Kind == FenceMachine {
			w.clients.at(between(m.rand, 0, time.Second), func() {
				if !m.up { // an operator who says so looks first
					w.clients.fenceOff(m)
				}
			})
		}
		end(func() {
			if !m.up && m.boot == boot && !m.fencing {
				w.say(m.name, "boots")
				m.start()
			}
		})
	case SleepMachine:
		m := first()
		m.sleep()
		end(m.wake)
	case SleepAgent, SleepSupervisor:
		w.sleepProcess(first(), f)
	case BreakStreams:
		for _, s := range slices.Clone(w.net.open) {
			for e := range s.ends {
				if s.ends[e].host.number == f.Hosts[0] {
					s.end(e)
				}
			}
		}
	case DrainMachine:
		w.clients.drain(first().name, f.For)
	case Release:
		w.clients.release()
	}
}

// cut cuts the links that cross, or heals them.
func (w *world) cut(f *Fault, by int) {
	hosts := w.hosts()
	for _, a := range hosts {
		for _, b := range hosts {
			inside, to := slices.Contains(f.Hosts, a.number), slices.Contains(f.Hosts, b.number)
			if inside && !to || f.Kind == Partition && to && !inside {
				w.net.link(a, b).cut += by
			}
		}
	}
}

func (w *world) hosts() []*host {
	var out []*host
	for _, s := range w.servers {
		out = append(out, s.host)
	}
	for _, m := range w.machines {
		out = append(out, m.host)
	}
	return out // clients are cut from nobody
}

func (w *world) everyLink(do func(*link)) {
	hosts := append(w.hosts(), w.clients.host)
	for _, a := range hosts {
		for _, b := range hosts {
			do(w.net.link(a, b))
		}
	}
}

// killProcesses kills the agent, the supervisor, or both. While a supervisor is stopped only its agent can end its tasks, and an
// agent knows their leases only from answers in its own life: then the agent is left alone.
func (w *world) killProcesses(m *machine, f *Fault) {
	if !m.up || m.asleep {
		return
	}
	if f.Kind != KillAgent {
		m.super.kill()
	}
	if f.Kind != KillSupervisor && !m.super.asleep {
		m.agent.kill()
		m.kernel.at(min(f.For, 30*time.Second), m.agent.start)
	}
}

// sleepProcess stops one process with SIGSTOP. A worker of which both are stopped is a suspended one without its tasks: nobody
// promises anything then.
func (w *world) sleepProcess(m *machine, f *Fault) {
	p, other := m.agent.proc, m.super.proc
	if f.Kind == SleepSupervisor {
		p, other = other, p
		for _, id := range sortedIDs(m.procs) {
			if m.procs[id].began < m.agent.since || !m.agent.renewed {
				return
			}
		}
	}
	if !p.alive || p.asleep || other.asleep || !other.alive {
		return
	}
	life := p.life
	p.asleep = true
	w.wire.at(f.For, func() {
		if p.life == life {
			p.asleep = false
			p.wake()
		}
	})
}
