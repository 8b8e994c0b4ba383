//go:build chaos

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Step is faults, one or a pair, done together.
type Step struct {
	At     time.Duration // after the start
	For    time.Duration
	Faults []Fault
}

func (s Step) String() string {
	words := make([]string, len(s.Faults))
	for i, f := range s.Faults {
		words[i] = f.String()
	}
	return fmt.Sprintf("at %6.1fs for %4.1fs  %s", s.At.Seconds(), s.For.Seconds(), strings.Join(words, "  +  "))
}

// choice is a kind of fault, drawn with its details.
type choice struct {
	name    string
	draw    func(r *rand.Rand, servers, workers []string) Fault
	longest time.Duration
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// aServer is more often the leader than not: it is who matters most.
func aServer(r *rand.Rand, servers []string) string {
	return pick(r, append([]string{leader, leader, leader, follower}, servers...))
}

// choices are all faults there are.
var choices = []choice{
	{"kill", func(r *rand.Rand, s, _ []string) Fault { return Kill{[]string{aServer(r, s)}} }, 15 * time.Second},
	{"kill", func(r *rand.Rand, s, _ []string) Fault { return Kill{[]string{leader, follower}} }, 10 * time.Second},
	{"kill", func(r *rand.Rand, s, _ []string) Fault { return Kill{s} }, 5 * time.Second},
	{"kill", func(r *rand.Rand, _, w []string) Fault { return Kill{[]string{pick(r, w)}} }, 25 * time.Second},
	{"kill", func(r *rand.Rand, _, w []string) Fault { return KillSupervisor{pick(r, w), false} }, 5 * time.Second},
	{"kill", func(r *rand.Rand, _, w []string) Fault { return KillSupervisor{pick(r, w), true} }, 15 * time.Second},
	{"stop", func(r *rand.Rand, s, _ []string) Fault { return Pause{aServer(r, s)} }, 60 * time.Second},
	{"stop", func(r *rand.Rand, _, w []string) Fault { return Suspend{pick(r, w)} }, 60 * time.Second},
	{"partition", func(r *rand.Rand, s, _ []string) Fault { return Partition{halves, []string{aServer(r, s)}} }, 30 * time.Second},
	{"partition", func(r *rand.Rand, s, _ []string) Fault { return Partition{oneWay, []string{aServer(r, s)}} }, 20 * time.Second},
	{"partition", func(r *rand.Rand, s, _ []string) Fault { return Partition{bridge, []string{pick(r, s)}} }, 20 * time.Second},
	{"partition", func(*rand.Rand, []string, []string) Fault { return Partition{fromServers, []string{leader}} }, 20 * time.Second},
	{"partition", func(*rand.Rand, []string, []string) Fault { return Partition{fromWorkers, []string{leader}} }, 30 * time.Second},
	{"partition", func(r *rand.Rand, s, w []string) Fault {
		return Partition{gossipOnly, []string{pick(r, slices.Concat(s, w))}}
	}, 30 * time.Second},
	{"partition", func(r *rand.Rand, _, w []string) Fault { return Partition{alone, []string{pick(r, w)}} }, 40 * time.Second},
	{"partition", func(r *rand.Rand, _, w []string) Fault { return Partition{serversToWorker, []string{pick(r, w)}} }, 40 * time.Second},
	{"weather", func(r *rand.Rand, s, _ []string) Fault {
		return Weather{"delay", someHosts(r, s), Quality{Delay: time.Duration(5+r.IntN(45)) * time.Millisecond}}
	}, 20 * time.Second},
	{"weather", func(r *rand.Rand, s, _ []string) Fault {
		return Weather{"jitter", someHosts(r, s), Quality{Delay: 5 * time.Millisecond, Jitter: time.Duration(10+r.IntN(90)) * time.Millisecond}}
	}, 20 * time.Second},
	{"weather", func(r *rand.Rand, s, _ []string) Fault { return Weather{"loss", someHosts(r, s), Quality{Loss: 0.3}} }, 20 * time.Second},
	{"weather", func(r *rand.Rand, s, _ []string) Fault {
		return Weather{"duplicates", someHosts(r, s), Quality{Duplicate: 0.3}}
	}, 20 * time.Second},
	{"weather", func(r *rand.Rand, s, _ []string) Fault {
		return Weather{"reordering", someHosts(r, s), Quality{Reorder: 0.3}}
	}, 20 * time.Second},
	{"clock", func(r *rand.Rand, s, _ []string) Fault {
		return Clock{aServer(r, s), pick(r, []time.Duration{time.Hour, -time.Hour}), 0}
	}, 20 * time.Second},
	{"clock", func(r *rand.Rand, s, _ []string) Fault {
		return Clock{aServer(r, s), 0, pick(r, []float64{0.05, -0.05, 0.5})}
	}, 30 * time.Second},
	{"clock", func(r *rand.Rand, s, _ []string) Fault {
		return Pace{aServer(r, s), pick(r, []float64{0.04, -0.04})} // leases are safe up to 5 %
	}, 60 * time.Second},
	{"disk", func(r *rand.Rand, s, _ []string) Fault { return Disk{aServer(r, s), "fail"} }, 5 * time.Second},
	{"disk", func(r *rand.Rand, s, _ []string) Fault { return Disk{aServer(r, s), "hang"} }, 10 * time.Second},
	{"twin", func(r *rand.Rand, _, w []string) Fault { return Twin{pick(r, w)} }, 30 * time.Second},
	{"reboot", func(r *rand.Rand, s, w []string) Fault {
		return Reboot{pick(r, append([]string{aServer(r, s)}, w...))}
	}, 20 * time.Second},
}

// someHosts are all half of the time (none named), else one server.
func someHosts(r *rand.Rand, servers []string) []string {
	if r.IntN(2) == 0 {
		return nil
	}
	return []string{aServer(r, servers)}
}

// kinds are the names by which choices are left out or in.
func kinds() []string {
	var names []string
	for _, c := range choices {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

// Plan draws faults, alone and in pairs, with time to recover in between, until the duration is over. It follows from its
// arguments alone. allowed: the names of choices.
func Plan(seed uint64, duration time.Duration, servers, workers []string, allowed []string) []Step {
	r := rand.New(rand.NewPCG(seed, 2))
	var from []choice
	for _, c := range choices {
		if slices.Contains(allowed, c.name) {
			from = append(from, c)
		}
	}
	var steps []Step
	if len(from) == 0 {
		return nil
	}
	for at := 5 * time.Second; ; {
		step := Step{At: at}
		longest := time.Duration(0)
		for range 1 + r.IntN(2) {
			c := pick(r, from)
			step.Faults = append(step.Faults, c.draw(r, servers, workers))
			longest = max(longest, c.longest)
		}
		// Short ones are more likely: a fault that ends while the answer to it is under way is the harder one.
		share := r.Float64()
		step.For = max(500*time.Millisecond, time.Duration(share*share*float64(longest)).Round(100*time.Millisecond))
		if at+step.For > duration {
			return steps
		}
		steps = append(steps, step)
		at += step.For + time.Duration(1+r.IntN(6))*time.Second
	}
}
