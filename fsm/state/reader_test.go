package state

import (
	"fmt"
	"sync"
	"testing"

	"github.com/musterhpc/muster"
)

// Readers walk whatever snapshot is newest while the writer goes on: for the race detector.
func TestReadersAndTheWriterDoNotMeet(t *testing.T) {
	w := newStory(t)
	w.register(machine("gpu-01", 8), machine("gpu-02", 8))
	snapshots := make(chan *Snapshot, 4)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for s := range snapshots {
				if err := s.CheckInvariants(); err != nil {
					t.Error(err)
				}
				for range s.Rows() {
				}
			}
		})
	}
	for i := range 50 {
		id := w.do(&Submit{Header: Header{RequestID: fmt.Sprint(i), User: "ann"}, Specs: []*muster.JobSpec{gang("x", 2, 4)}}).Jobs[0]
		snapshots <- w.snapshot()
		for _, a := range w.run(id, "gpu-01", "gpu-02") {
			w.exit(a, i%2)
			snapshots <- w.snapshot()
		}
	}
	close(snapshots)
	readers.Wait()
}
