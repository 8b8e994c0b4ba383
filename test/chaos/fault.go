//go:build chaos

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster/test/chaos/check"
)

// Fault is something that is done to a world. Its String is all there is to know about it.
type Fault interface {
	fmt.Stringer
	Kind() string
	// Begin does it, and gives how to take it back and what it hits. "leader" in a fault means who leads at that moment.
	Begin(w *World) (hit check.Fault, heal func(), err error)
}

// leader stands for whichever server leads when a fault begins, follower for the first that does not.
const (
	leader   = "leader"
	follower = "follower"
)

func (w *World) who(names []string) []string {
	out := slices.Clone(names)
	for i, name := range out {
		switch name {
		case leader:
			out[i] = w.Leader()
		case follower:
			leads := w.Leader()
			out[i] = w.Servers[slices.IndexFunc(w.Servers, func(s string) bool { return s != leads })]
		}
	}
	return out
}

func list(names []string) string { return strings.Join(names, " and ") }

func (w *World) servers(names []string) (servers []string) {
	for _, n := range names {
		if w.Machines[n].Server {
			servers = append(servers, n)
		}
	}
	return servers
}

func (w *World) workers(names []string) (workers []string) {
	for _, n := range names {
		if !w.Machines[n].Server {
			workers = append(workers, n)
		}
	}
	return workers
}

// Kill is kill -9 of agents, which stay down meanwhile; supervisors and tasks live on.
type Kill struct{ Agents []string }

func (f Kill) String() string { return "kill -9 " + list(f.Agents) }

// Kind tells servers by how many they are.
func (f Kill) Kind() string {
	switch {
	case strings.HasPrefix(f.Agents[0], "w"):
		return "kill agent"
	case len(f.Agents) == 1:
		return "kill server"
	case len(f.Agents) == 2:
		return "kill majority"
	}
	return "kill all servers"
}

func (f Kill) Begin(w *World) (check.Fault, func(), error) {
	names := w.who(f.Agents)
	for _, n := range names {
		w.Machines[n].KeepDown()
	}
	return check.Fault{Targets: names, Down: w.servers(names)}, func() {
		for _, n := range names {
			w.Machines[n].StartAgain()
		}
	}, nil
}

// KillOther is kill -9 of the last server that does not lead, the first being "follower".
type KillOther struct{}

func (KillOther) String() string { return "kill -9 the other follower" }
func (KillOther) Kind() string   { return "kill server" }

func (KillOther) Begin(w *World) (check.Fault, func(), error) {
	leads, other := w.Leader(), ""
	for _, s := range w.Servers {
		if s != leads {
			other = s
		}
	}
	return Kill{[]string{other}}.Begin(w)
}

// KillSupervisor is kill -9 of a worker's supervisor, and of its agent too if Both.
type KillSupervisor struct {
	Worker string
	Both   bool
}

func (f KillSupervisor) String() string {
	if f.Both {
		return "kill -9 supervisor and agent of " + f.Worker
	}
	return "kill -9 supervisor of " + f.Worker
}

func (f KillSupervisor) Kind() string {
	if f.Both {
		return "kill supervisor and agent"
	}
	return "kill supervisor"
}

func (f KillSupervisor) Begin(w *World) (check.Fault, func(), error) {
	m := w.Machines[f.Worker]
	heal := func() {}
	if f.Both {
		m.KeepDown()
		heal = m.StartAgain
	}
	m.KillSupervisors()
	return check.Fault{Targets: []string{f.Worker}}, heal, nil
}

// Pause is SIGSTOP of a server.
type Pause struct{ Server string }

func (f Pause) String() string { return "SIGSTOP " + f.Server }
func (f Pause) Kind() string   { return "stop server" }

func (f Pause) Begin(w *World) (check.Fault, func(), error) {
	names := w.who([]string{f.Server})
	m := w.Machines[names[0]]
	m.Pause()
	return check.Fault{Targets: names, Down: names}, m.Resume, nil
}

// Suspend is SIGSTOP of everything on a machine, tasks included.
type Suspend struct{ Machine string }

func (f Suspend) String() string { return "suspend machine " + f.Machine }
func (f Suspend) Kind() string   { return "suspend machine" }

func (f Suspend) Begin(w *World) (check.Fault, func(), error) {
	names := w.who([]string{f.Machine})
	m := w.Machines[names[0]]
	m.Freeze()
	return check.Fault{Targets: names, Down: w.servers(names), Suspended: w.workers(names)}, m.Thaw, nil
}

// Reboot cuts a machine's power; it comes back with another boot id.
type Reboot struct{ Machine string }

func (f Reboot) String() string { return "power cut of " + f.Machine }
func (f Reboot) Kind() string   { return "reboot" }

func (f Reboot) Begin(w *World) (check.Fault, func(), error) {
	names := w.who([]string{f.Machine})
	m := w.Machines[names[0]]
	m.Off()
	return check.Fault{Targets: names, Down: w.servers(names)}, func() {
		if err := m.On(); err != nil {
			w.say("%v", err)
		}
	}, nil
}

// Partition cuts links. What hosts are cut is worked out when it begins, since it may depend on who leads.
type Partition struct {
	Shape string
	Hosts []string // what the shape is about
}

// The shapes.
const (
	halves          = "halves"              // Hosts with every other worker | the others; clients reach both
	oneWay          = "one way"             // nothing from Hosts[0] reaches the other servers
	bridge          = "bridge"              // Hosts[0] hears both others, they don't hear each other
	fromServers     = "off servers"         // Hosts[0] and the other servers; workers and clients reach all
	fromWorkers     = "off workers"         // Hosts[0] and all workers
	gossipOnly      = "gossip only"         // gossip between Hosts and everybody else
	alone           = "alone"               // Hosts and everybody else
	serversToWorker = "servers can't reach" // Hosts: what they send arrives, answers don't
)

func (f Partition) String() string { return fmt.Sprintf("partition, %s: %s", f.Shape, list(f.Hosts)) }
func (f Partition) Kind() string   { return "partition " + f.Shape }

func (f Partition) Begin(w *World) (check.Fault, func(), error) {
	hosts := w.who(f.Hosts)
	rules := f.rules(w, hosts)
	hit := check.Fault{Targets: hosts}
	for _, r := range rules {
		if r.Class != Gossip {
			hit.Links = append(hit.Links, linksOf(r)...)
		}
	}
	return hit, w.Net.Impose(rules...), nil
}

func (f Partition) rules(w *World, hosts []string) []Rule {
	cut := Quality{Cut: true}
	both := func(a, b []string, class Class) []Rule {
		return []Rule{{From: a, To: b, Class: class, Quality: cut}, {From: b, To: a, Class: class, Quality: cut}}
	}
	others := func(of []string) []string {
		return slices.DeleteFunc(slices.Clone(of), func(s string) bool { return slices.Contains(hosts, s) })
	}
	everybody := append(append(slices.Clone(w.Servers), w.Workers...), clients)
	switch f.Shape {
	case halves:
		one, two := slices.Clone(hosts), others(w.Servers)
		for i, name := range w.Workers {
			if i%2 == 0 {
				one = append(one, name)
			} else {
				two = append(two, name)
			}
		}
		return both(one, two, AnyClass)
	case oneWay:
		return []Rule{{From: hosts, To: others(w.Servers), Quality: cut}}
	case bridge:
		apart := others(w.Servers)
		return both(apart[:1], apart[1:], AnyClass)
	case fromServers:
		return both(hosts, others(w.Servers), AnyClass)
	case fromWorkers:
		return both(hosts, w.Workers, AnyClass)
	case gossipOnly:
		return both(hosts, others(everybody), Gossip)
	case serversToWorker:
		return []Rule{{From: w.Servers, To: hosts, Quality: cut}}
	default:
		return both(hosts, others(everybody), AnyClass)
	}
}

func linksOf(r Rule) (links []check.Link) {
	loss := r.Loss
	if r.Cut {
		loss = 1
	}
	for _, from := range r.From {
		for _, to := range r.To {
			links = append(links, check.Link{From: from, To: to, Loss: loss, Delay: r.Delay + r.Jitter})
		}
	}
	return links
}

// Weather makes all links between Hosts and everybody else worse; no Hosts: all links.
type Weather struct {
	Name  string
	Hosts []string
	Quality
}

func (f Weather) String() string {
	if len(f.Hosts) == 0 {
		return "all links: " + f.Quality.String()
	}
	return fmt.Sprintf("links of %s: %s", list(f.Hosts), f.Quality)
}
func (f Weather) Kind() string { return f.Name }

func (f Weather) Begin(w *World) (check.Fault, func(), error) {
	hosts := w.who(f.Hosts)
	everybody := append(append(slices.Clone(w.Servers), w.Workers...), clients)
	rules := []Rule{{From: everybody, To: everybody, Quality: f.Quality}}
	if len(hosts) > 0 {
		others := slices.DeleteFunc(everybody, func(s string) bool { return slices.Contains(hosts, s) })
		rules = []Rule{{From: hosts, To: others, Quality: f.Quality}, {From: others, To: hosts, Quality: f.Quality}}
	}
	hit := check.Fault{Targets: hosts}
	for _, r := range rules {
		hit.Links = append(hit.Links, linksOf(r)...)
	}
	return hit, w.Net.Impose(rules...), nil
}

// Clock makes a server's wall clock jump and drift.
type Clock struct {
	Server string
	Offset time.Duration
	Drift  float64
}

func (f Clock) String() string {
	return fmt.Sprintf("clock of %s off by %s, drift %g", f.Server, f.Offset, f.Drift)
}

func (f Clock) Kind() string {
	if f.Drift != 0 {
		return "clock drifts"
	}
	return "clock jumps"
}

func (f Clock) Begin(w *World) (check.Fault, func(), error) {
	return w.faultFile(f.Server, "clock", fmt.Sprintf("%s %g", f.Offset, f.Drift), false)
}

// Pace makes the clock by which a server measures leases drift.
type Pace struct {
	Server string
	Drift  float64
}

func (f Pace) String() string {
	return fmt.Sprintf("lease clock of %s drifts by %g", f.Server, f.Drift)
}
func (f Pace) Kind() string { return "lease clock drifts" }

func (f Pace) Begin(w *World) (check.Fault, func(), error) {
	return w.faultFile(f.Server, "boot", fmt.Sprint(f.Drift), false)
}

// Disk makes the writes to a server's log fail or hang.
type Disk struct{ Server, How string }

func (f Disk) String() string { return fmt.Sprintf("disk of %s: %s", f.Server, f.How) }
func (f Disk) Kind() string   { return "disk " + f.How }

func (f Disk) Begin(w *World) (check.Fault, func(), error) {
	return w.faultFile(f.Server, "disk", f.How, true)
}

func (w *World) faultFile(server, what, how string, down bool) (check.Fault, func(), error) {
	names := w.who([]string{server})
	m := w.Machines[names[0]]
	hit := check.Fault{Targets: names}
	if down {
		hit.Down = names
	}
	return hit, func() {
		if err := m.Fault(what, ""); err != nil {
			w.say("%v", err)
		}
	}, m.Fault(what, how)
}

// Twin starts a second machine with a copy of a worker's data directory: two machines with one node id.
type Twin struct{ Worker string }

func (f Twin) String() string { return "a twin of " + f.Worker }
func (f Twin) Kind() string   { return "twin" }

func (f Twin) Begin(w *World) (check.Fault, func(), error) {
	heal, err := w.startTwin(f.Worker)
	return check.Fault{Targets: []string{f.Worker}}, heal, err
}
