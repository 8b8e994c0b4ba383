package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

// A synthetic week: bursts of small jobs, shares of GPUs, work without GPUs, gangs of several nodes, three users. Under each
// policy every job runs to its end, and a judge that knows nothing of the scheduler finds nothing that is held twice.
func TestASyntheticTraceIsReplayedLegallyUnderEachPolicy(t *testing.T) {
	nodes, jobs := syntheticTrace(7, 300)
	for _, order := range muster.Orders {
		for _, preemption := range muster.Preemptions {
			t.Run(string(order)+" "+string(preemption), func(t *testing.T) {
				policy := muster.DefaultPolicy()
				policy.Order, policy.Preemption, policy.Round = order, preemption, time.Minute
				res, err := RunQueue(context.Background(), &Queue{Nodes: nodes, Jobs: jobs, Policy: &policy, Overhead: 30 * time.Second, Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				judge(t, nodes, jobs, res)
				if preemption == muster.PreemptOff && res.Preemptions > 0 {
					t.Errorf("%d preemptions where there may be none", res.Preemptions)
				}
			})
		}
	}
}

func syntheticTrace(seed uint64, n int) ([]Node, []Job) {
	draw := rand.New(rand.NewPCG(seed, 1))
	var nodes []Node
	for i := range 6 {
		nodes = append(nodes, Node{Name: fmt.Sprintf("m%d", i), MilliCores: 64_000, Memory: 256 * muster.GiB, GPUs: 8, Model: "T4"})
	}
	var jobs []Job
	at := time.Duration(0)
	for i := range n {
		at += time.Duration(draw.ExpFloat64() * float64(10*time.Minute)).Round(time.Second)
		j := Job{ID: fmt.Sprintf("j%d", i), User: []string{"ann", "bob", "eve"}[draw.IntN(3)], Submit: at,
			Duration: time.Duration(60+draw.ExpFloat64()*7200) * time.Second, Need: Need{GPUs: []int{0, 1, 1, 1, 2, 4, 8, 16, 20}[draw.IntN(9)], Milli: 1000}}
		j.Limit = 2 * j.Duration
		j.Need.MilliCores = muster.MilliCores(500 + 2000*j.Need.GPUs)
		j.Need.Memory = muster.Bytes(1+4*j.Need.GPUs) * muster.GiB
		if j.Need.GPUs == 1 && draw.IntN(2) == 0 {
			j.Need.Milli = []int{250, 330, 500, 700}[draw.IntN(4)]
		}
		jobs = append(jobs, j)
	}
	return nodes, jobs
}

// judge replays the segments second by second of their edges and adds up what each device and node gives.
func judge(t *testing.T, nodes []Node, jobs []Job, res *QueueResult) {
	t.Helper()
	progress := make([]time.Duration, len(jobs))
	runs := make([]int, len(jobs))
	type holding struct {
		start, end time.Duration
		milli      int
	}
	devices := map[string][]holding{}
	for _, s := range res.Segments {
		j := &jobs[s.Job]
		if s.Start < j.Submit {
			t.Errorf("%s starts before it was submitted", j.ID)
		}
		gain := s.End - s.Start
		if runs[s.Job]++; runs[s.Job] > 1 {
			gain = max(0, gain-30*time.Second)
		}
		progress[s.Job] += gain
		gpus := 0
		for _, part := range strings.Split(s.Alloc, ";") {
			node, list, _ := strings.Cut(part, ":")
			for _, device := range strings.FieldsFunc(list, func(r rune) bool { return r == '-' }) {
				if k, err := strconv.Atoi(device); err != nil || k >= 8 {
					t.Fatalf("%s: device %q", j.ID, device)
				}
				gpus++
				key := node + "/" + device
				for _, other := range devices[key] {
					if other.start < s.End && s.Start < other.end && other.milli+j.Need.Milli > 1000 && j.Need.Milli == 1000 {
						t.Errorf("%s is given twice at %v", key, s.Start)
					}
				}
				devices[key] = append(devices[key], holding{s.Start, s.End, j.Need.Milli})
			}
		}
		if gpus != j.Need.GPUs {
			t.Errorf("%s holds %d GPUs, asked for %d", j.ID, gpus, j.Need.GPUs)
		}
	}
	for key, list := range devices { // shares: what is held at each start
		for _, h := range list {
			sum := 0
			for _, o := range list {
				if o.start <= h.start && h.start < o.end {
					sum += o.milli
				}
			}
			if sum > 1000 {
				t.Errorf("%s: %d thousandths at %v", key, sum, h.start)
			}
		}
	}
	for i := range jobs {
		if d := progress[i] - jobs[i].Duration; d < -time.Millisecond || d > time.Millisecond {
			t.Errorf("%s ran %v, needs %v", jobs[i].ID, progress[i], jobs[i].Duration)
		}
	}
}
