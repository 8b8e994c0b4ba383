package simulation

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// horizon is the virtual time of a plan in which there are faults.
const horizon = 2 * time.Minute

// chapter gives the plan of one chapter of a seed: a long run is many worlds one after the other, so that what fails is short.
func chapter(seed uint64, n int) *Plan { return NewPlan(seed+uint64(n)*1_000_003, horizon) }

// judged runs a plan and, when a promise was broken, tells the shortest story of it that it finds.
func judged(t *testing.T, p *Plan, runs int) Outcome {
	t.Helper()
	o := Run(p, Bugs{}, nil)
	if o.Failure != "" {
		small, found := Shrink(p, Bugs{}, runs)
		t.Errorf("seed %d breaks %q at %v: %s\nas short as it gets, %q:\n%s", p.Seed, o.Promise, o.At, o.Failure, found.Failure, Story(small, Bugs{}))
	}
	return o
}

func TestTenSeedsKeepEveryPromise(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			o := judged(t, chapter(seed, 0), 100)
			t.Logf("%d steps, %v: %s", o.Steps, o.Virtual.Round(time.Second), o.Counts)
		})
	}
}

// TestSeeds is for use by hand (make simulate-faults): SEEDS (a number of seeds, from FIRST on) and STEPS (of each) say how long;
// without them it is an eleventh seed.
func TestSeeds(t *testing.T) {
	first, seeds, steps := number(t, "FIRST", 10), number(t, "SEEDS", 1), number(t, "STEPS", 1)
	began, total := time.Now(), 0
	var sum Counts
	for seed := first; seed < first+seeds && !t.Failed(); seed++ {
		for n, done := 0, 0; done < int(steps) && !t.Failed(); n++ {
			o := judged(t, chapter(seed, n), 1000)
			done += o.Steps
			total += o.Steps
			sum.add(o.Counts)
		}
	}
	took := time.Since(began)
	t.Logf("seeds %d to %d: %d steps in %v, %.0f a minute; %s", first, first+seeds-1, total, took.Round(time.Millisecond),
		float64(total)/took.Minutes(), sum)
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s is not a number", name, text)
	}
	return n
}

func TestTheSamePlanRunsTheSame(t *testing.T) {
	p := NewPlan(3, time.Minute)
	if first, second := Run(p, Bugs{}, nil), Run(p, Bugs{}, nil); first != second {
		t.Fatalf("two runs of one plan differ:\n%+v\n%+v", first, second)
	}
}

// Each guard that is taken away is found, and told shortly.
func TestWhatIsDoneWrongIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		bugs    Bugs
		plan    *Plan
		promise string
	}{
		"a leader answers renewals without a majority": {Bugs{ContactIsNow: true}, cutOff(), "one owner"},
		"a leader ends leases early":                   {Bugs{LeasesAreShort: true}, NewPlan(11, horizon), "one owner"},
		"nobody kills what has no lease":               {Bugs{LeasesDoNotKill: true}, NewPlan(1, horizon), "one owner"},
		"older views are acted on":                     {Bugs{ActsOnOlderViews: true, ServesThePast: true, HellosOvertake: true}, frozen(), "no older view"},
		"a start is on the disk after the process is":  {Bugs{IntentsAreLate: true}, NewPlan(23, horizon), "started once"},
		"an agent forgets its journal":                 {Bugs{ForgetsItsJournal: true}, NewPlan(2, horizon), "started once"},
		"a server that lags passes renewals on":        {Bugs{RenewsAheadOfState: true}, NewPlan(102, horizon), "cancels"},
		"an overtaken hello counts":                    {Bugs{HellosOvertake: true}, overtaken(), "one owner"},
		"a server says that it has what it may lose":   {Bugs{AnswersBeforeSync: true}, NewPlan(37, horizon), "agreement"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Run(c.plan, c.bugs, nil)
			for o.Promise != c.promise && c.plan.Noise < 30 {
				c.plan.Noise++
				o = Run(c.plan, c.bugs, nil)
			}
			if o.Promise != c.promise {
				t.Fatalf("it breaks %q (%s), want %q", o.Promise, o.Failure, c.promise)
			}
			if o := Run(c.plan, Bugs{}, nil); o.Failure != "" {
				t.Fatalf("without that too: %s", o.Failure)
			}
			small, found := Shrink(c.plan, c.bugs, 12)
			if found.Promise != c.promise || len(small.Faults) > len(c.plan.Faults) || len(small.Jobs) > len(c.plan.Jobs) {
				t.Errorf("it shrinks to %d faults and %d submissions: %s", len(small.Faults), len(small.Jobs), found.Failure)
			}
			story := Story(small, c.bugs)
			if lines := strings.Count(story, "\n"); lines > storyLines+2 || !strings.Contains(story, found.Failure) {
				t.Errorf("a story of %d lines:\n%s", lines, story)
			}
			t.Logf("%d faults and %d submissions became %d and %d:\n%s", len(c.plan.Faults), len(c.plan.Jobs), len(small.Faults), len(small.Jobs), story)
		})
	}
}

// small is a plan without faults: a job each second on one machine, long and short ones.
func small(runs ...time.Duration) *Plan {
	p := &Plan{Seed: 1, Servers: 3, Machines: 2, GPUs: 8, Drift: []float64{1, 1, 1, 1, 1}, StepDown: time.Second, Horizon: time.Minute}
	for i := range 50 {
		p.Jobs = append(p.Jobs, JobPlan{At: time.Duration(i) * time.Second, Name: fmt.Sprint("job-", i+1), Ranks: 1, GPUs: 1,
			Runs: runs[i%len(runs)], Lease: 10 * time.Second, KillTimeout: time.Second})
	}
	return p
}

// frozen is a plan in which servers serve the past, and a worker that has seen more comes to them.
func frozen() *Plan {
	p := small(time.Second, 12*time.Second)
	for i := range 2 {
		at := time.Duration(5+25*i) * time.Second
		p.Faults = append(p.Faults, Fault{At: at, For: 20 * time.Second, Kind: StallServer, Hosts: []int{i}})
		for again := range 2 {
			p.Faults = append(p.Faults, Fault{At: at + time.Duration(3+again)*time.Second, Kind: BreakStreams, Hosts: []int{3}})
		}
	}
	return p
}

// cutOff is a plan in which each server is in turn alone with the workers.
func cutOff() *Plan {
	p := small(50 * time.Second)
	p.Horizon = 3 * time.Minute
	for i := range 3 {
		p.Faults = append(p.Faults, Fault{At: time.Duration(8+50*i) * time.Second, For: 40 * time.Second, Kind: Partition, Hosts: []int{i, 3, 4}})
	}
	return p
}

// overtaken is a plan in which a machine says hello to a server that sleeps, loses its power, and is back before that wakes.
func overtaken() *Plan {
	p := small(3 * time.Second)
	for i := range 5 {
		at := time.Duration(5+10*i) * time.Second
		p.Faults = append(p.Faults,
			Fault{At: at, For: 3 * time.Second, Kind: SleepServer, Hosts: []int{i % 3}},
			Fault{At: at + 50*time.Millisecond, Kind: BreakStreams, Hosts: []int{3}},
			Fault{At: at + 400*time.Millisecond, For: 100 * time.Millisecond, Kind: CrashMachine, Hosts: []int{3}})
	}
	return p
}
