// Package gpu is what GPUs are in this machine.
package gpu

import (
	"crypto/sha256"
	"fmt"

	"github.com/musterhpc/muster"
)

// Simulated gives n GPUs that don't exist, for trying muster on a machine without any. Their UUIDs follow from instance, the
// id of the worker's data directory: the same after each start, different for each worker.
func Simulated(instance string, n int, model string, memory muster.Bytes) []muster.GPU {
	gpus := make([]muster.GPU, n)
	for i := range gpus {
		h := sha256.Sum256(fmt.Appendf(nil, "%s gpu %d", instance, i))
		gpus[i] = muster.GPU{
			UUID:   fmt.Sprintf("GPU-%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16]),
			Model:  model,
			Memory: memory,
			BusID:  fmt.Sprintf("00000000:%02X:00.0", i+1),
			Health: muster.GPUHealthy,
		}
	}
	return gpus
}
