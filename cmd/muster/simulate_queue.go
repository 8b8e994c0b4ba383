package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/scheduler/sim"
)

// queueFlags are what `muster simulate queue` is told.
type queueFlags struct {
	jobs, nodes, topology, policy, within, out, compare string

	n, perNode int
	noLimits   bool
	overhead   time.Duration
	seed       uint64
}

func (a *app) simulateQueueCommand() *cobra.Command {
	var f queueFlags
	cmd := &cobra.Command{
		Use: "queue", Short: "what would have run when: jobs that come, wait, run and end", Args: usageArgs(cobra.NoArgs),
		Long: `What would have run when: a trace of jobs, replayed through the scheduler of a cluster.

The scheduler knows a job's limit and not its duration. --out gets a row for each uninterrupted run: job_id,start,end,alloc.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.simulateQueue(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.jobs, "jobs", "", "CSV: job_id,user,submit,duration,gpus[,gpu_milli,cpu_milli,memory_mib,gpu_spec],limit; seconds")
	flags.StringVar(&f.nodes, "nodes", "", "CSV: sn,cpu_milli,memory_mib,gpu,model; or say -n")
	flags.IntVarP(&f.n, "n", "n", 0, "so many equal nodes")
	flags.IntVar(&f.perNode, "gpus-per-node", 8, "of each of the -n nodes")
	flags.StringVar(&f.topology, "topology", "", "CSV: sn,leaf,pod; each gang would then like one leaf")
	flags.StringVar(&f.within, "within", "", "a label of the topology (leaf, pod) of which no gang may use more than one")
	flags.StringVar(&f.policy, "policy", "", "a queues file: its scheduling block, and its queues (none: each user is one)")
	flags.BoolVar(&f.noLimits, "no-limits", false, "hide the jobs' limits from the scheduler")
	flags.DurationVar(&f.overhead, "restart-overhead", 30*time.Second, "what a start costs a job that ran before")
	flags.Uint64Var(&f.seed, "seed", 1, "draws the order of equal nodes")
	flags.StringVar(&f.out, "out", "", "the file for the runs")
	flags.StringVar(&f.compare, "compare", "", "another policy file, or another number of nodes, to put beside it")
	flags.StringVarP(&a.global.output, "output", "o", os.Getenv("MUSTER_OUTPUT"), "table or json")
	flags.BoolVar(&a.global.json, "json", false, "the same as -o json")
	return cmd
}

func (a *app) simulateQueue(ctx context.Context, f *queueFlags) error {
	asJSON, err := a.simulatedOutput()
	if err != nil {
		return err
	}
	if f.jobs == "" || (f.nodes == "") == (f.n == 0) {
		return muster.Errorf(muster.KindUsage, "simulate queue needs --jobs, and either --nodes or -n")
	}
	otherPolicy, otherNodes, err := comparison(f.compare)
	if err != nil {
		return err
	}
	cfg, err := a.loadQueue(f, f.policy, f.n)
	if err != nil {
		return err
	}
	runs := []*sim.Queue{cfg}
	names := []string{"simulated"}
	if f.compare != "" {
		policy, n := f.policy, f.n
		if otherNodes > 0 {
			if f.n == 0 {
				return muster.Errorf(muster.KindUsage, "--compare %d: another number of nodes needs -n, not --nodes", otherNodes)
			}
			n = otherNodes
			names = []string{fmt.Sprintf("%d nodes", f.n), fmt.Sprintf("%d nodes", n)}
		} else {
			policy = otherPolicy
			names = []string{policyName(f.policy), policyName(otherPolicy)}
		}
		other, err := a.loadQueue(f, policy, n)
		if err != nil {
			return err
		}
		runs = append(runs, other)
	}
	results := make([]*sim.QueueResult, len(runs))
	for i, run := range runs {
		run.Progress = a.bar(names[i])
		if results[i], err = sim.RunQueue(ctx, run); err != nil {
			return err
		}
	}
	if f.out != "" {
		if err := writeOut(f.out, results[0].WriteSegments); err != nil {
			return err
		}
	}
	if asJSON {
		return a.queueJSON(names, results)
	}
	return queueTable(names, results).print(a.io.out)
}

func policyName(path string) string {
	if path == "" {
		return "default policy"
	}
	return path
}

// loadQueue reads what a run needs.
func (a *app) loadQueue(f *queueFlags, policy string, n int) (*sim.Queue, error) {
	cfg := &sim.Queue{NoLimits: f.noLimits, Within: f.within, Overhead: f.overhead, Seed: f.seed}
	file, err := a.policyFile(policy)
	if err != nil {
		return nil, err
	}
	if file != nil {
		cfg.Policy, cfg.Queues = &file.Policy, file.Queues
	}
	if f.nodes != "" {
		cfg.Nodes, err = sim.ReadNodes(f.nodes)
	} else if f.n < 1 || f.perNode < 0 || f.perNode > muster.MaxSlots {
		err = fmt.Errorf("%d nodes with %d GPUs each: at least one, with at most %d", f.n, f.perNode, muster.MaxSlots)
	} else {
		cfg.Nodes = sim.PlainNodes(n, f.perNode)
	}
	if err == nil && f.topology != "" {
		if err = sim.ReadTopology(f.topology, cfg.Nodes); f.within == "" {
			cfg.Prefer = "leaf"
		}
	}
	if err == nil {
		cfg.Jobs, err = sim.ReadJobs(f.jobs)
	}
	if err != nil {
		return nil, muster.Errorf(muster.KindUsage, "%v", err)
	}
	return cfg, nil
}

// queueTable puts results side by side.
func queueTable(names []string, results []*sim.QueueResult) table {
	t := table{header: append([]string{""}, names...), state: -1}
	line := func(name string, of func(*sim.QueueResult) string) {
		row := []string{name}
		for _, r := range results {
			row = append(row, of(r))
		}
		t.rows = append(t.rows, row)
	}
	line("jobs", func(r *sim.QueueResult) string { return fmt.Sprint(len(r.Jobs)) })
	line("GPUs", func(r *sim.QueueResult) string { return fmt.Sprint(r.GPUs) })
	line("makespan", func(r *sim.QueueResult) string { return short(r.Makespan) })
	line("GPUs in use", func(r *sim.QueueResult) string { return percent(r.Utilisation) })
	line("  until the last job came", func(r *sim.QueueResult) string { return percent(r.Loaded) })
	line("GPUs free while a job waited", func(r *sim.QueueResult) string { return percent(r.Stranded) })
	line("preemptions", func(r *sim.QueueResult) string { return fmt.Sprint(r.Preemptions) })
	times := func(name string, of func(*sim.QueueResult) (sim.Summary, bool)) {
		each := func(what string, d func(*sim.Summary) time.Duration) {
			line(name+what, func(r *sim.QueueResult) string {
				s, ok := of(r)
				if !ok {
					return "-"
				}
				return short(d(&s))
			})
		}
		each(" mean completion", func(s *sim.Summary) time.Duration { return s.MeanJCT })
		each(" p50 completion", func(s *sim.Summary) time.Duration { return s.MedianJCT })
		each(" p99 completion", func(s *sim.Summary) time.Duration { return s.P99JCT })
		each(" mean wait", func(s *sim.Summary) time.Duration { return s.MeanWait })
		each(" p50 wait", func(s *sim.Summary) time.Duration { return s.MedianWait })
		each(" p99 wait", func(s *sim.Summary) time.Duration { return s.P99Wait })
	}
	times("all:", func(r *sim.QueueResult) (sim.Summary, bool) { return r.All, true })
	part := func(list func(*sim.QueueResult) []sim.Summary, title func(string) string) {
		for _, s := range list(results[0]) {
			times(title(s.Name)+":", func(r *sim.QueueResult) (sim.Summary, bool) {
				at := slices.IndexFunc(list(r), func(o sim.Summary) bool { return o.Name == s.Name })
				if at < 0 {
					return sim.Summary{}, false
				}
				return list(r)[at], true
			})
		}
	}
	part(func(r *sim.QueueResult) []sim.Summary { return r.BySize }, sizeTitle)
	part(func(r *sim.QueueResult) []sim.Summary {
		if len(r.ByUser) < 2 {
			return nil
		}
		return r.ByUser
	}, func(user string) string {
		if user == "" {
			return "user -"
		}
		return "user " + user
	})
	return t
}

func sizeTitle(size string) string {
	switch size {
	case "cpu":
		return "without GPUs"
	case "share":
		return "share of a GPU"
	case "1":
		return "1 GPU"
	}
	return size + " GPUs"
}

// queueJSON prints results for programs: times in seconds.
func (a *app) queueJSON(names []string, results []*sim.QueueResult) error {
	type summary struct {
		Name       string  `json:"name"`
		Jobs       int     `json:"jobs"`
		MeanJCT    float64 `json:"jct_mean"`
		MedianJCT  float64 `json:"jct_p50"`
		P99JCT     float64 `json:"jct_p99"`
		MeanWait   float64 `json:"wait_mean"`
		MedianWait float64 `json:"wait_p50"`
		P99Wait    float64 `json:"wait_p99"`
	}
	type item struct {
		Name        string    `json:"name"`
		GPUs        int       `json:"gpus"`
		Makespan    float64   `json:"makespan"`
		Utilisation float64   `json:"utilisation"`
		Loaded      float64   `json:"utilisation_until_last_submit"`
		Stranded    float64   `json:"free_while_waiting"`
		Preemptions int       `json:"preemptions"`
		All         summary   `json:"all"`
		BySize      []summary `json:"by_size"`
		ByUser      []summary `json:"by_user"`
	}
	convert := func(s sim.Summary) summary {
		return summary{s.Name, s.Jobs, s.MeanJCT.Seconds(), s.MedianJCT.Seconds(), s.P99JCT.Seconds(), s.MeanWait.Seconds(),
			s.MedianWait.Seconds(), s.P99Wait.Seconds()}
	}
	each := func(list []sim.Summary) []summary {
		out := []summary{}
		for _, s := range list {
			out = append(out, convert(s))
		}
		return out
	}
	var items []item
	for i, r := range results {
		items = append(items, item{names[i], r.GPUs, r.Makespan.Seconds(), r.Utilisation, r.Loaded, r.Stranded, r.Preemptions,
			convert(r.All), each(r.BySize), each(r.ByUser)})
	}
	encoder := json.NewEncoder(a.io.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Schema string `json:"schema"`
		Items  []item `json:"items"`
	}{"muster.v1", items})
}
