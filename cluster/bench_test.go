package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/fsm/state"
	"github.com/musterhpc/muster/wire"
)

// BenchmarkPropose64Callers proposes small requests from 64 callers to three servers over loopback, with real fsync.
func BenchmarkPropose64Callers(b *testing.B) {
	c := startCluster(b, 3, nil)
	leader := c.leader()
	// Reports about nothing: they cost the state next to nothing, so that what is measured is the way through the log.
	report := wire.CommandOf(&state.ReportAllocs{Node: 1, Allocs: []muster.AllocReport{{ID: muster.AllocID{Epoch: 1, Counter: 1}}}})
	benchmarkCallers(b, 64, func() error {
		_, err := leader.Propose(context.Background(), report)
		return err
	})
}

// BenchmarkSubmit64Callers submits jobs that pend.
func BenchmarkSubmit64Callers(b *testing.B) {
	c := startCluster(b, 3, nil)
	leader := c.leader()
	benchmarkCallers(b, 64, func() error {
		_, err := leader.Propose(context.Background(), submission("job"))
		return err
	})
}

// BenchmarkReadIndex64Callers asks for linearizable reads.
func BenchmarkReadIndex64Callers(b *testing.B) {
	c := startCluster(b, 3, nil)
	leader := c.leader()
	benchmarkCallers(b, 64, func() error {
		_, err := leader.ReadIndex(context.Background())
		return err
	})
}

func benchmarkCallers(b *testing.B, callers int, call func() error) {
	var next atomic.Int64
	var wait sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wait.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}
