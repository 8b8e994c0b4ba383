package gpu

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhpc/muster"
)

func TestSimulatedGPUsAreTheSameAfterEachStartAndDifferForEachWorker(t *testing.T) {
	a, again := Simulated("one", 8, "H100", 80*muster.GiB), Simulated("one", 8, "H100", 80*muster.GiB)
	if d := cmp.Diff(a, again); d != "" {
		t.Error(d)
	}
	seen := map[string]bool{}
	for _, g := range append(a, Simulated("two", 8, "H100", 80*muster.GiB)...) {
		if seen[g.UUID] {
			t.Errorf("%s twice", g.UUID)
		}
		seen[g.UUID] = true
		if len(g.UUID) != len("GPU-5f2f1e9c-1111-2222-3333-444455556666") || !strings.HasPrefix(g.UUID, "GPU-") {
			t.Errorf("%q does not look like the UUID of a GPU", g.UUID)
		}
	}
}

// driver puts a nvidia-smi of the test's own into PATH.
func driver(t *testing.T, script string) {
	dir := t.TempDir()
	if script != "" {
		if err := os.WriteFile(filepath.Join(dir, query), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

func TestGPUsComeInTheOrderOfTheirBusWithMemory(t *testing.T) {
	driver(t, `echo '00000000:65:00.0, GPU-b, NVIDIA H200, 143771, Disabled'
echo '00000000:17:00.0, GPU-a, NVIDIA H200, 143771, Enabled'
echo '00000000:99:00.0, GPU-c, NVIDIA GB10, [N/A], [N/A]'`)
	gpus, why := Detect(context.Background())
	want := []muster.GPU{
		{BusID: "00000000:17:00.0", UUID: "GPU-a", Model: "NVIDIA H200", Memory: 143771 * muster.MiB,
			Health: muster.GPUQuarantined, Reason: "MIG mode is on, which is not supported yet"},
		{BusID: "00000000:65:00.0", UUID: "GPU-b", Model: "NVIDIA H200", Memory: 143771 * muster.MiB, Health: muster.GPUHealthy},
		{BusID: "00000000:99:00.0", UUID: "GPU-c", Model: "NVIDIA GB10", Health: muster.GPUQuarantined,
			Reason: "the driver does not know its memory: [N/A]"},
	}
	if d := cmp.Diff(want, gpus); d != "" || why != "" {
		t.Error(d, why)
	}
}

func TestAMachineWithoutGPUsSaysWhy(t *testing.T) {
	for name, c := range map[string]struct{ script, why string }{
		"no driver":     {"", "no NVIDIA driver: nvidia-smi is not in PATH"},
		"broken driver": {"echo Failed to initialize NVML; exit 9", "nvidia-smi: exit status 9: Failed to initialize NVML"},
		"none":          {"", "no NVIDIA driver"},
		"empty":         {":", "the NVIDIA driver lists no GPU"},
		"nonsense":      {"echo hello", "nvidia-smi: its answer is not what was asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			driver(t, c.script)
			gpus, why := Detect(context.Background())
			if len(gpus) != 0 || !strings.HasPrefix(why, c.why) {
				t.Errorf("%v, %q", gpus, why)
			}
		})
	}
}
