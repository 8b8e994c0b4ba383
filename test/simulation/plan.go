package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhpc/muster"
)

// Plan is all that is decided before a run: what it holds, runs the same each time.
type Plan struct {
	Seed     uint64
	Noise    uint64 // other delays and losses under the same plan
	Servers  int
	Machines int
	GPUs     int           // of a machine
	Drift    []float64     // rates of the clocks of servers, then machines
	StepDown time.Duration // how long a leader without a majority takes itself for one
	Horizon  time.Duration // faults and submissions end here; then everything must come to rest
	Jobs     []JobPlan
	Faults   []Fault
}

// JobPlan is a submission, and what its client does later.
type JobPlan struct {
	At          time.Duration
	Name        string
	Ranks       int
	GPUs        int // of a rank
	Runs        time.Duration
	Code        int
	Deaf        bool // to the kill signal
	Lease       time.Duration
	Grace       time.Duration
	KillTimeout time.Duration
	Limit       time.Duration // 0 = none
	Retries     int
	Priority    int
	CancelAfter time.Duration // after the acknowledgement; 0 = never
	CancelMode  muster.StopMode
}

// Fault is something that goes wrong at a time, for a while.
type Fault struct {
	At     time.Duration
	For    time.Duration
	Kind   FaultKind
	Hosts  []int // servers, then machines: who it hits; of a partition, one side
	Amount int   // percent, or milliseconds
}

// FaultKind is what goes wrong.
type FaultKind uint8

// The faults.
const (
	CrashServer     FaultKind = iota // power off of servers: what was not synced may be gone
	SleepServer                      // suspended
	StallServer                      // entries are committed there and not applied: it serves the past
	SlowDisk                         // syncs of a server take long
	Partition                        // no link crosses
	CutOneWay                        // nothing gets out of these hosts
	LossyNetwork                     // every link loses and doubles datagrams
	SlowNetwork                      // every link is slow, and datagrams overtake each other
	KillAgent                        // kill -9
	KillSupervisor                   // kill -9: tasks go with it
	KillBoth                         // kill -9 of agent and supervisor
	CrashMachine                     // power off, then a new boot
	SleepMachine                     // suspended: agent, supervisor and tasks
	SleepAgent                       // SIGSTOP
	SleepSupervisor                  // SIGSTOP
	BreakStreams                     // every connection of a host is reset
	DrainMachine                     // an operator drains a node, then takes it back
	Release                          // an operator lets held jobs go on
	FenceMachine                     // power off, and an operator says so
	faultKinds
)

var faultNames = []string{"crash of", "suspension of", "stall of", "slow disk of", "partition of", "nothing gets out of", "lossy network", "slow network",
	"kill -9 of the agent on", "kill -9 of the supervisor on", "kill -9 of agent and supervisor on", "power off of", "suspension of",
	"SIGSTOP of the agent on", "SIGSTOP of the supervisor on", "reset of the connections of", "drain of", "release of held jobs", "power off and fence of"}

func serverName(i int) string  { return fmt.Sprintf("server-%d", i+1) }
func machineName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// NewPlan draws a plan from a seed.
func NewPlan(seed uint64, horizon time.Duration) *Plan {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	p := &Plan{Seed: seed, Servers: []int{3, 3, 5}[r.IntN(3)], Machines: 3 + r.IntN(4), GPUs: 2 + r.IntN(3), Horizon: horizon,
		StepDown: between(r, 500*time.Millisecond, []time.Duration{2 * time.Second, 6 * time.Second, 30 * time.Second}[r.IntN(3)])}
	for range p.Servers + p.Machines {
		p.Drift = append(p.Drift, 1+(r.Float64()-0.5)*0.048) // any two: under 5 % of each other
	}
	for at := between(r, 0, 2*time.Second); at < horizon; at += between(r, 0, 8*time.Second) {
		p.Jobs = append(p.Jobs, p.newJob(r, at))
	}
	dense := between(r, 4*time.Second, 20*time.Second) // between faults
	for at := between(r, 2*time.Second, dense); at < horizon-5*time.Second; at += between(r, 100*time.Millisecond, 2*dense) {
		p.Faults = append(p.Faults, p.newFault(r, at))
		if chance(r, 25) {
			p.burst(r, at)
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return p
}

func (p *Plan) newJob(r *rand.Rand, at time.Duration) JobPlan {
	j := JobPlan{
		At: at, Name: fmt.Sprintf("job-%d", len(p.Jobs)+1), Ranks: 1, GPUs: r.IntN(p.GPUs + 1), Runs: between(r, 50*time.Millisecond, 8*time.Second),
		Lease: time.Duration(10+r.IntN(10)) * time.Second, Grace: between(r, 0, time.Second), KillTimeout: between(r, 500*time.Millisecond, 2*time.Second),
		Priority: r.IntN(3), Deaf: chance(r, 20),
	}
	if chance(r, 40) {
		j.Ranks = 2 + r.IntN(p.Machines)
		for !p.fits(&j) {
			j.GPUs--
		}
	}
	if chance(r, 25) {
		j.Runs = between(r, 8*time.Second, 60*time.Second)
	}
	if chance(r, 20) {
		j.Code = 1 + r.IntN(3)
		j.Retries = r.IntN(3)
	}
	if chance(r, 10) {
		j.Limit = between(r, time.Second, 10*time.Second)
	}
	if chance(r, 25) {
		j.CancelAfter = between(r, time.Millisecond, 15*time.Second)
		j.CancelMode = []muster.StopMode{muster.StopSave, muster.StopKill}[r.IntN(2)]
		if chance(r, 50) {
			j.Runs = between(r, 20*time.Second, 60*time.Second)
		}
	}
	return j
}

// burst lets much go wrong at once, around one server and one machine.
func (p *Plan) burst(r *rand.Rand, at time.Duration) {
	server, node := r.IntN(p.Servers), p.Servers+r.IntN(p.Machines)
	for range 3 + r.IntN(4) {
		f := p.newFault(r, at+between(r, 0, 3*time.Second))
		f.For = between(r, 100*time.Millisecond, 6*time.Second)
		for i, h := range f.Hosts {
			if f.Hosts[i] = server; h >= p.Servers {
				f.Hosts[i] = node
			}
		}
		slices.Sort(f.Hosts)
		f.Hosts = slices.Compact(f.Hosts)
		if f.At+f.For < p.Horizon {
			p.Faults = append(p.Faults, f)
		}
	}
}

// fits says whether all ranks could ever run together: else a job waits for ever.
func (p *Plan) fits(j *JobPlan) bool { return j.GPUs == 0 || p.GPUs/j.GPUs*p.Machines >= j.Ranks }

func (p *Plan) newFault(r *rand.Rand, at time.Duration) Fault {
	f := Fault{At: at, Kind: FaultKind(r.IntN(int(faultKinds)))}
	f.For = between(r, 100*time.Millisecond, []time.Duration{time.Second, 10 * time.Second, 40 * time.Second}[r.IntN(3)])
	f.For = min(f.For, p.Horizon-at)
	server := func() int { return r.IntN(p.Servers) }
	node := func() int { return p.Servers + r.IntN(p.Machines) }
	switch f.Kind {
	case CrashServer:
		f.Hosts = r.Perm(p.Servers)[:1+r.IntN(p.Servers)]
	case SleepServer, StallServer:
		f.Hosts = []int{server()}
	case SlowDisk:
		f.Hosts, f.Amount = []int{server()}, 20+r.IntN(2000)
	case Partition, CutOneWay:
		all := r.Perm(p.Servers + p.Machines)
		f.Hosts = all[:1+r.IntN(len(all)-1)]
		if chance(r, 50) {
			f.Hosts = []int{[]func() int{server, node}[r.IntN(2)]()}
		}
	case LossyNetwork:
		f.Amount = 1 + r.IntN(30)
	case SlowNetwork:
		f.Amount = 5 + r.IntN(800)
	case BreakStreams:
		f.Hosts = []int{r.IntN(p.Servers + p.Machines)}
	case Release:
	default:
		f.Hosts = []int{node()}
	}
	return f
}

// describe is the fault in a line.
func (f *Fault) describe(p *Plan) string {
	text := faultNames[f.Kind]
	for _, h := range f.Hosts {
		if h < p.Servers {
			text += " " + serverName(h)
		} else {
			text += " " + machineName(h-p.Servers)
		}
	}
	switch f.Kind {
	case LossyNetwork:
		text += fmt.Sprintf(": %d %%", f.Amount)
	case SlowNetwork, SlowDisk:
		text += fmt.Sprintf(": up to %d ms", f.Amount)
	}
	return fmt.Sprintf("%s, for %v", text, f.For.Round(time.Millisecond))
}

func (j *JobPlan) describe() string {
	text := fmt.Sprintf("%s: %d ranks of %d GPUs that run %v, lease %v", j.Name, j.Ranks, j.GPUs, j.Runs.Round(time.Millisecond), j.Lease)
	if j.Code != 0 {
		text += fmt.Sprintf(", exit code %d", j.Code)
	}
	if j.CancelAfter > 0 {
		text += fmt.Sprintf(", cancelled after %v", j.CancelAfter.Round(time.Millisecond))
	}
	return text
}

func (j *JobPlan) spec() *muster.JobSpec {
	deaf := "hears"
	if j.Deaf {
		deaf = "deaf"
	}
	g := muster.Group{
		Name: j.Name, Count: j.Ranks,
		Checkpoint: muster.Checkpoint{Grace: j.Grace}, Disconnect: muster.Disconnect{StopAfter: j.Lease},
		Task: muster.Task{Name: "main", Command: "task", Args: []string{j.Runs.String(), fmt.Sprint(j.Code), deaf}, KillSignal: "SIGTERM",
			KillTimeout: j.KillTimeout, SuccessCodes: []int{0},
			Resources: muster.Resources{GPUs: j.GPUs, MilliCores: 1000, Memory: muster.GiB}},
	}
	if j.Retries > 0 {
		g.Retry = muster.Retry{Attempts: j.Retries, On: []muster.Class{muster.ClassExit}, Delay: time.Second, MaxDelay: 4 * time.Second}
	}
	return &muster.JobSpec{Name: j.Name, Queue: muster.DefaultQueue, Type: muster.Batch, Priority: j.Priority, TimeLimit: j.Limit,
		Groups: []muster.Group{g}}
}
