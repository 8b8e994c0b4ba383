package scheduler

import (
	"fmt"
	"testing"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
)

// bigWorld has n machines of 8 GPUs in racks of 32.
func bigWorld(b *testing.B, n int) *world {
	b.Helper()
	w := newWorld(b)
	for i := range n {
		w.node(fmt.Sprintf("n%d", i), "H100*8", label("rack", fmt.Sprintf("r%d", i/32)))
	}
	return w
}

func (w *world) submitMany(specs []*muster.JobSpec) {
	w.t.Helper()
	const batch = 1000
	for len(specs) > 0 {
		n := min(batch, len(specs))
		w.apply(&state.Submit{Header: state.Header{User: "ann"}, Specs: specs[:n], Pend: true})
		specs = specs[n:]
	}
}

func equal(s *muster.JobSpec, n int) []*muster.JobSpec {
	out := make([]*muster.JobSpec, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func benchPass(b *testing.B, w *world, signals Signals, gangs int) {
	b.ResetTimer()
	for b.Loop() {
		if plan := Schedule(w.view, signals, 0); len(plan.Gangs) != gangs {
			b.Fatalf("%d gangs, want %d", len(plan.Gangs), gangs)
		}
	}
}

func BenchmarkOneJobOn10kNodes(b *testing.B) {
	w := bigWorld(b, 10_000)
	w.submit(gpus(1))
	benchPass(b, w, Signals{}, 1)
}

func BenchmarkOneJobOn10kNodesWithLoads(b *testing.B) {
	w := bigWorld(b, 10_000)
	w.submit(gpus(1))
	loads := map[muster.NodeID]int64{}
	for i := range w.view.nodes {
		loads[w.view.nodes[i].row.ID] = int64(i*7919) % 1000
	}
	benchPass(b, w, Signals{Load: loads}, 1)
}

func Benchmark1kEqualJobsOn10kNodes(b *testing.B) {
	w := bigWorld(b, 10_000)
	w.submitMany(equal(spec(gpus(1)), 1000))
	benchPass(b, w, Signals{}, 1000)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/placement")
}

func BenchmarkGangOf64x8On10kNodes(b *testing.B) {
	w := bigWorld(b, 10_000)
	w.submit(gpus(8), ranks(64))
	benchPass(b, w, Signals{}, 1)
}

func BenchmarkGangWithinARackOn10kNodes(b *testing.B) {
	w := bigWorld(b, 10_000)
	w.submit(gpus(8), ranks(16), within("rack"))
	benchPass(b, w, Signals{}, 1)
}

// Every machine has another amount of memory, so that each is a class of its own.
func Benchmark1kEqualJobsOn10kUnequalNodes(b *testing.B) {
	w := newWorld(b)
	for i := range 10_000 {
		w.node(fmt.Sprintf("n%d", i), "H100*8", func(n *muster.Node) { n.Memory += muster.Bytes(i) * 4096 })
	}
	w.submitMany(equal(spec(gpus(1)), 1000))
	benchPass(b, w, Signals{}, 1000)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/placement")
}

// fullWorld has pending jobs, in shapes of equal number, behind a full cluster.
func fullWorld(b *testing.B, nodes, jobs, shapes int) *world {
	w := bigWorld(b, nodes)
	for range (nodes + 511) / 512 {
		w.submit(gpus(8), ranks(min(512, nodes)))
	}
	w.place()
	specs := make([]*muster.JobSpec, jobs)
	kinds := make([]*muster.JobSpec, shapes)
	for i := range kinds {
		kinds[i] = spec(gpus(1+i%8), memory(muster.Bytes(1+i)*muster.MiB))
	}
	for i := range specs {
		specs[i] = kinds[i%shapes]
	}
	w.submitMany(specs)
	return w
}

func BenchmarkPassOver1MPendingIn10kShapesNothingFree(b *testing.B) {
	w := fullWorld(b, 1024, 1_000_000, 10_000)
	benchPass(b, w, Signals{}, 0)
}

func BenchmarkAdvance1kChanges(b *testing.B) {
	w := bigWorld(b, 10_000)
	w.submitMany(equal(spec(gpus(8), ranks(1)), 100_000))
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		plan := Schedule(w.view, Signals{}, 0)
		if len(plan.Gangs) < 500 { // used up: begin again
			w = bigWorld(b, 10_000)
			w.submitMany(equal(spec(gpus(8), ranks(1)), 100_000))
			plan = Schedule(w.view, Signals{}, 0)
		}
		plan.Gangs = plan.Gangs[:500] // 500 jobs and 500 nodes
		w.index++
		entry := state.Entry{Commands: []state.Command{&state.CommitPlan{Term: term, Gangs: plan.Gangs}}}
		_, changed := w.state.Apply(entry, w.index, term)
		w.snap = w.state.Snapshot()
		b.StartTimer()
		w.view.Advance(w.snap, changed)
	}
}

func BenchmarkNewViewOf100kPending(b *testing.B) {
	w := fullWorld(b, 1024, 100_000, 1000)
	b.ResetTimer()
	for b.Loop() {
		NewView(w.snap)
	}
}

func BenchmarkExplainOn10kNodes(b *testing.B) {
	w := bigWorld(b, 10_000)
	w.submit(gpus(1))
	w.place()
	job := w.submit(gpus(8), ranks(10_000))
	b.ResetTimer()
	for b.Loop() {
		w.view.Explain(job, Signals{}, 0)
	}
}

// unevenWorld has n machines, each with a random number of free GPUs and one of 16 remainders of cores and memory. What holds them
// names its cores, so that places are weighed.
func unevenWorld(b *testing.B, n int) *world {
	w := bigWorld(b, n)
	plan := &state.CommitPlan{Term: term}
	for i := range n {
		r := uint32(i) * 2654435761 >> 8
		held, part := int(r%9), 1+int(r>>8%16)
		if held == 0 {
			continue
		}
		job := w.submit(gpus(held), cores(part), memory(muster.Bytes(part)*muster.GiB))
		rank := state.RankPlacement{Node: w.view.nodes[i].row.ID, Slots: muster.SlotRange(held),
			MilliCores: muster.MilliCores(part) * 1000, Memory: muster.Bytes(part) * muster.GiB}
		plan.Gangs = append(plan.Gangs, state.GangPlacement{Job: job, Attempt: 1, Ranks: []state.RankPlacement{rank}})
	}
	if refused := w.apply(plan)[0].Refused; len(refused) > 0 {
		b.Fatalf("refused: %s", refused[0].Reason)
	}
	return w
}

func BenchmarkOneJobWeighedOn10kUnevenNodes(b *testing.B) {
	w := unevenWorld(b, 10_000)
	w.submit(gpus(1), cores(4), memory(16*muster.GiB))
	benchPass(b, w, Signals{}, 1)
}

func Benchmark1kEqualJobsWeighedOn10kUnevenNodes(b *testing.B) {
	w := unevenWorld(b, 10_000)
	w.submitMany(equal(spec(gpus(1), cores(4), memory(16*muster.GiB)), 1000))
	benchPass(b, w, Signals{}, 1000)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/placement")
}
