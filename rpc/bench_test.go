package rpc_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/musterhpc/muster/rpc"
)

// BenchmarkSubmit64CallersOver16Connections is what the way to the leader costs, all ends in one process and without a disk: each
// caller submits at any of three servers, as it finds them.
func BenchmarkSubmit64CallersOver16Connections(b *testing.B) {
	c := startCluster(b, 3)
	clients := make([]*rpc.Client, 16)
	for i := range clients {
		clients[i] = c.client(rpc.Options{}, i%3, (i+1)%3)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var calling sync.WaitGroup
	for caller := range 64 {
		calling.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := clients[caller%len(clients)].Submit(b.Context(), submission("bench")); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	calling.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "submissions/s")
}

// BenchmarkForwardedSubmitAlone is one caller at a follower, whose unix socket it does not leave for the leader: the latency
// that a hop adds.
func BenchmarkForwardedSubmitAlone(b *testing.B) {
	c := startCluster(b, 2)
	client, err := rpc.Dial([]string{c.members[1].socket()}, rpc.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for b.Loop() {
		if _, err := client.Submit(b.Context(), submission("bench")); err != nil {
			b.Fatal(err)
		}
	}
}
