package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/scheduler/sim"
)

// placementFlags are what `muster simulate placement` is told.
type placementFlags struct {
	nodes, arrivals, history, policy, compare, out string

	seed uint64
}

func (a *app) simulatePlacementCommand() *cobra.Command {
	var f placementFlags
	cmd := &cobra.Command{
		Use: "placement", Short: "where arrivals would be placed that come one by one and never leave", Args: usageArgs(cobra.NoArgs),
		Long: `Where arrivals would be placed that come one by one and never leave: how full a cluster gets before nothing fits.

There is no queue: what fits nowhere is rejected for good. --history is what the cluster has seen before, for which placement
keeps room; without it the mix is learnt from what arrives. --out gets a row for each arrival: seq,pod,node,gpus.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.simulatePlacement(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.nodes, "nodes", "", "CSV: sn,cpu_milli,memory_mib,gpu,model")
	flags.StringVar(&f.arrivals, "arrivals", "", "CSV: seq,pod,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec")
	flags.StringVar(&f.history, "history", "", "CSV: name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec")
	flags.StringVar(&f.policy, "policy", "", "a queues file: its scheduling block")
	flags.StringVar(&f.compare, "compare", "", "another policy file, to put beside it")
	flags.Uint64Var(&f.seed, "seed", 1, "draws the order of equal nodes")
	flags.StringVar(&f.out, "out", "", "the file for the placements")
	flags.StringVarP(&a.global.output, "output", "o", os.Getenv("MUSTER_OUTPUT"), "table or json")
	flags.BoolVar(&a.global.json, "json", false, "the same as -o json")
	return cmd
}

func (a *app) simulatePlacement(ctx context.Context, f *placementFlags) error {
	asJSON, err := a.simulatedOutput()
	if err != nil {
		return err
	}
	if f.nodes == "" || f.arrivals == "" {
		return muster.Errorf(muster.KindUsage, "simulate placement needs --nodes and --arrivals")
	}
	policies, names := []string{f.policy}, []string{"placed"}
	if f.compare != "" {
		policies, names = append(policies, f.compare), []string{policyName(f.policy), policyName(f.compare)}
	}
	var results []*sim.PlacementResult
	for i, policy := range policies {
		cfg, err := a.loadPlacement(f, policy)
		if err != nil {
			return err
		}
		cfg.Progress = a.bar(names[i])
		result, err := sim.RunPlacement(ctx, cfg)
		if err != nil {
			return err
		}
		results = append(results, result)
	}
	if f.out != "" {
		if err := writeOut(f.out, results[0].WritePlacements); err != nil {
			return err
		}
	}
	if asJSON {
		return a.placementJSON(names, results)
	}
	return placementTable(names, results).print(a.io.out)
}

func (a *app) loadPlacement(f *placementFlags, policy string) (*sim.Placement, error) {
	cfg := &sim.Placement{Seed: f.seed}
	file, err := a.policyFile(policy)
	if err != nil {
		return nil, err
	}
	if file != nil {
		cfg.Policy, cfg.Queues = &file.Policy, file.Queues
	}
	if cfg.Nodes, err = sim.ReadNodes(f.nodes); err == nil {
		cfg.Arrivals, err = sim.ReadPods(f.arrivals)
	}
	if err == nil && f.history != "" {
		cfg.History, err = sim.ReadHistory(f.history)
	}
	if err != nil {
		return nil, muster.Errorf(muster.KindUsage, "%v", err)
	}
	return cfg, nil
}

func percent(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }

func placementTable(names []string, results []*sim.PlacementResult) table {
	t := table{header: append([]string{""}, names...), state: -1}
	line := func(name string, of func(*sim.PlacementResult) string) {
		row := []string{name}
		for _, r := range results {
			row = append(row, of(r))
		}
		t.rows = append(t.rows, row)
	}
	line("arrivals", func(r *sim.PlacementResult) string { return fmt.Sprint(len(r.Pods)) })
	line("GPUs", func(r *sim.PlacementResult) string { return fmt.Sprint(r.GPUs) })
	line("asked for, of the GPUs", func(r *sim.PlacementResult) string { return percent(r.Arrived) })
	line("given out when as much was asked for as there is", func(r *sim.PlacementResult) string { return percent(r.AtFull) })
	line("given out at the end", func(r *sim.PlacementResult) string { return percent(r.Allocated) })
	line("  free where no core is left", func(r *sim.PlacementResult) string { return percent(r.Stranded) })
	line("cores given out", func(r *sim.PlacementResult) string { return percent(r.CPU) })
	line("memory given out", func(r *sim.PlacementResult) string { return percent(r.RAM) })
	line("rejected", func(r *sim.PlacementResult) string { return fmt.Sprint(r.Rejected) })
	for i := range results[0].BySize {
		line("  "+sizeTitle(results[0].BySize[i].Name), func(r *sim.PlacementResult) string {
			return fmt.Sprintf("%d of %d", r.BySize[i].Rejected, r.BySize[i].Arrived)
		})
	}
	return t
}

// placementJSON prints results for programs: parts of one.
func (a *app) placementJSON(names []string, results []*sim.PlacementResult) error {
	type size struct {
		Name     string `json:"name"`
		Arrived  int    `json:"arrived"`
		Rejected int    `json:"rejected"`
	}
	type item struct {
		Name      string  `json:"name"`
		GPUs      int     `json:"gpus"`
		Arrivals  int     `json:"arrivals"`
		Asked     float64 `json:"asked"`
		AtFull    float64 `json:"allocated_at_full"`
		Allocated float64 `json:"allocated"`
		Stranded  float64 `json:"stranded"`
		Cores     float64 `json:"cores"`
		Memory    float64 `json:"memory"`
		Rejected  int     `json:"rejected"`
		BySize    []size  `json:"by_size"`
	}
	var items []item
	for i, r := range results {
		it := item{names[i], r.GPUs, len(r.Pods), r.Arrived, r.AtFull, r.Allocated, r.Stranded, r.CPU, r.RAM, r.Rejected, []size{}}
		for _, s := range r.BySize {
			it.BySize = append(it.BySize, size(s))
		}
		items = append(items, it)
	}
	encoder := json.NewEncoder(a.io.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Schema string `json:"schema"`
		Items  []item `json:"items"`
	}{"muster.v1", items})
}
