package gpu

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster"
)

// query is the driver's own tool: a child process, so that a driver that hangs never takes the agent along.
const query = "nvidia-smi"

// Deadline is how long the driver may take to say which GPUs there are. Without persistence mode it first wakes each one.
const Deadline = 30 * time.Second

// Detect lists the machine's GPUs by bus id. With none, why says so in a sentence for people. GPUs whose MIG mode is on are
// not supported yet and come as quarantined: nothing is placed there.
func Detect(ctx context.Context) (gpus []muster.GPU, why string) {
	path, err := exec.LookPath(query)
	if err != nil {
		return nil, "no NVIDIA driver: nvidia-smi is not in PATH"
	}
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--query-gpu=pci.bus_id,uuid,name,memory.total,mig.mode.current",
		"--format=csv,noheader,nounits")
	cmd.WaitDelay = time.Second // a child in the D state can't be waited for
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return nil, fmt.Sprintf("the NVIDIA driver did not answer within %s", muster.FormatDuration(Deadline))
	case err != nil:
		said := strings.TrimSpace(out.String() + " " + problem.String()) // it complains on stdout
		return nil, fmt.Sprintf("nvidia-smi: %v: %s", err, said)
	}
	gpus, err = parse(out.Bytes())
	switch {
	case err != nil:
		return nil, fmt.Sprintf("nvidia-smi: %v", err)
	case len(gpus) == 0:
		return nil, "the NVIDIA driver lists no GPU"
	case len(gpus) > muster.MaxSlots:
		return gpus[:muster.MaxSlots], fmt.Sprintf("%d GPUs, of which muster uses the first %d", len(gpus), muster.MaxSlots)
	}
	return gpus, ""
}

// parse reads lines of bus id, UUID, name, MiB, MIG mode.
func parse(text []byte) ([]muster.GPU, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.TrimLeadingSpace, r.FieldsPerRecord = true, 5
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("its answer is not what was asked for: %w", err)
	}
	gpus := make([]muster.GPU, 0, len(rows))
	for _, row := range rows {
		g := muster.GPU{BusID: row[0], UUID: row[1], Model: row[2], Health: muster.GPUHealthy}
		if !strings.HasPrefix(g.UUID, "GPU-") {
			return nil, errors.New("a GPU has no UUID: " + strings.Join(row, ", "))
		}
		mib, err := strconv.ParseInt(row[3], 10, 64)
		if err != nil {
			g.Health, g.Reason = muster.GPUQuarantined, "the driver does not know its memory: "+row[3]
		}
		g.Memory = muster.Bytes(mib) * muster.MiB
		if row[4] == "Enabled" {
			g.Health, g.Reason = muster.GPUQuarantined, "MIG mode is on, which is not supported yet"
		}
		gpus = append(gpus, g)
	}
	slices.SortStableFunc(gpus, func(a, b muster.GPU) int { return strings.Compare(a.BusID, b.BusID) })
	return gpus, nil
}
