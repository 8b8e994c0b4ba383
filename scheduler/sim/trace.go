package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster"
)

// Node is a machine of a trace.
type Node struct {
	Name       string
	MilliCores muster.MilliCores
	Memory     muster.Bytes
	GPUs       int
	Model      string
	Labels     []muster.Label // sorted by key
}

// anyModel is the model of GPUs that a trace gives no name.
const anyModel = "GPU"

// The size of a machine of which only the number of GPUs is said; jobs that name no cores or memory get their GPUs' part.
const (
	plainCores  = 128_000
	plainMemory = muster.TiB
)

// PlainNodes makes n equal machines, n0 to n(n-1).
func PlainNodes(n, gpus int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprintf("n%d", i), MilliCores: plainCores, Memory: plainMemory, GPUs: gpus, Model: anyModel}
	}
	return nodes
}

// ReadNodes reads the columns sn,cpu_milli,memory_mib,gpu,model.
func ReadNodes(path string) ([]Node, error) {
	s, err := openSheet(path, "sn", "cpu_milli", "memory_mib", "gpu", "model")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var nodes []Node
	for s.next() {
		n := Node{Name: s.text("sn"), MilliCores: muster.MilliCores(s.integer("cpu_milli")),
			Memory: muster.Bytes(s.integer("memory_mib")) * muster.MiB, GPUs: int(s.integer("gpu")), Model: s.text("model")}
		if n.Model == "" {
			n.Model = anyModel
		}
		switch {
		case n.Name == "" || strings.ContainsAny(n.Name, ":;,"):
			s.fail("sn: %q is no name for a node", n.Name)
		case seen[n.Name]:
			s.fail("sn: %s stands there twice", n.Name)
		case n.GPUs > muster.MaxSlots:
			s.fail("gpu: %d are more than the %d that a node can have", n.GPUs, muster.MaxSlots)
		}
		seen[n.Name] = true
		nodes = append(nodes, n)
	}
	if s.err == nil && len(nodes) == 0 {
		return nil, fmt.Errorf("%s has no nodes", path)
	}
	return nodes, s.err
}

// ReadTopology gives nodes the labels leaf and pod, from the columns sn,leaf,pod. A leaf is a switch of its pod: the label's value
// is POD/LEAF.
func ReadTopology(path string, nodes []Node) error {
	s, err := openSheet(path, "sn", "leaf", "pod")
	if err != nil {
		return err
	}
	at := map[string]int{}
	for i := range nodes {
		at[nodes[i].Name] = i
	}
	for s.next() {
		i, known := at[s.text("sn")]
		if !known {
			continue
		}
		pod := s.text("pod")
		nodes[i].Labels = []muster.Label{{Key: "leaf", Value: pod + "/" + s.text("leaf")}, {Key: "pod", Value: pod}}
	}
	for i := range nodes {
		if s.err == nil && len(nodes[i].Labels) == 0 {
			return fmt.Errorf("%s does not say where %s is", path, nodes[i].Name)
		}
	}
	return s.err
}

// Need is what a job of a trace asks for: whole GPUs, a share of one, or none. Cores and memory of 0 are not named; a whole
// job's, not a rank's.
type Need struct {
	GPUs       int
	Milli      int // of each GPU: 1000, less is a share of one
	MilliCores muster.MilliCores
	Memory     muster.Bytes
	Models     []string
}

// readNeed reads the columns gpu_milli,cpu_milli,memory_mib,gpu_spec beside the number of GPUs.
func readNeed(s *sheet, gpus string) Need {
	n := Need{GPUs: int(s.integer(gpus)), Milli: 1000, MilliCores: muster.MilliCores(s.integer("cpu_milli")),
		Memory: muster.Bytes(s.integer("memory_mib")) * muster.MiB}
	if n.GPUs > 0 && s.text("gpu_milli") != "" {
		n.Milli = int(s.integer("gpu_milli"))
	}
	if n.GPUs > 0 {
		for _, model := range strings.Split(s.text("gpu_spec"), "|") {
			if model != "" {
				n.Models = append(n.Models, model)
			}
		}
		slices.Sort(n.Models)
	}
	if n.Milli < 1 || n.Milli > 1000 || n.Milli < 1000 && n.GPUs > 1 {
		s.fail("gpu_milli: %d of %d GPUs: a share is 1 to 999 of one GPU, else 1000", n.Milli, n.GPUs)
	}
	// A trace that has the column says how much: 0 is nothing, and not the GPUs' part of the node.
	if s.has("cpu_milli") {
		n.MilliCores = max(n.MilliCores, 1)
	}
	if s.has("memory_mib") {
		n.Memory = max(n.Memory, 1)
	}
	return n
}

// Job is a job of a trace. Duration is what it really needs, which no scheduler is told; Limit is what it may know.
type Job struct {
	ID       string
	User     string
	Submit   time.Duration // since the trace began
	Duration time.Duration
	Limit    time.Duration // 0: none
	Need     Need
}

// ReadJobs reads the columns job_id,user,submit,duration,gpus[,gpu_milli,cpu_milli,memory_mib,gpu_spec],limit; times in
// seconds. The jobs come back in order of submission, equal ones in the file's order.
func ReadJobs(path string) ([]Job, error) {
	s, err := openSheet(path, "job_id", "submit", "duration", "gpus")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var jobs []Job
	for s.next() {
		j := Job{ID: s.text("job_id"), User: s.text("user"), Submit: seconds(s.number("submit")), Duration: seconds(s.number("duration")),
			Limit: seconds(s.number("limit")), Need: readNeed(s, "gpus")}
		switch {
		case j.ID == "" || strings.Contains(j.ID, ","):
			s.fail("job_id: %q is no name for a job", j.ID)
		case seen[j.ID]:
			s.fail("job_id: %s stands there twice", j.ID)
		}
		seen[j.ID] = true
		jobs = append(jobs, j)
	}
	if s.err == nil && len(jobs) == 0 {
		return nil, fmt.Errorf("%s has no jobs", path)
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return int(max(-1, min(1, a.Submit-b.Submit))) })
	return jobs, s.err
}

// seconds rounds to the millisecond, which is what the state's clock counts.
func seconds(v float64) time.Duration { return time.Duration(v*1000+0.5) * time.Millisecond }
