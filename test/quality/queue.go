package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The policies of the experiments. None is tuned to a trace.
const (
	fifo = `scheduling {
  fair_share   = false
  order        = "fifo"
  preemption   = "off"
  reservations = 1
  wide {
    after = "10000h"
  }
}
`
	// What is published of SRSF lets wide gangs starve; here they may, too.
	srsf = `scheduling {
  fair_share = false
  order      = "shortest"
  preemption = "shortest"
  round      = "60s"
  wide {
    after = "10000h"
  }
}
`
	preemptive = `scheduling {
  fair_share = false
  order      = "shortest"
  preemption = "shortest"
  round      = "60s"
}
`
)

// shortestArea is not preemptive; wide gangs go first after so many hours.
func shortestArea(hours int) string {
	return fmt.Sprintf(`scheduling {
  fair_share   = false
  order        = "shortest"
  preemption   = "off"
  reservations = 1
  wide {
    after = "%dh"
  }
}
`, hours)
}

// replay is a run of jobs through `muster simulate queue`, and its judgement.
type replay struct {
	name, jobs, policy string
	cluster            []string // arguments of muster
	judged             []string // of the judge
	extra              []string // more arguments of muster
}

// equal is a cluster of n nodes with eight GPUs each.
func (r replay) equal(n int) replay {
	r.cluster = []string{"-n", strconv.Itoa(n), "--gpus-per-node", "8"}
	r.judged = []string{"-n", strconv.Itoa(n), "-gpn", "8"}
	return r
}

func (r replay) with(extra ...string) replay {
	r.extra = append(slices.Clone(r.extra), extra...)
	return r
}

func (b *bench) replay(ctx context.Context, r replay) (score, error) {
	file := strings.NewReplacer(" ", "-", "/", "-").Replace(r.name)
	policy, err := b.write(file+".hcl", r.policy)
	if err != nil {
		return nil, err
	}
	segments := b.path(file + ".segments")
	args := slices.Concat([]string{"simulate", "queue", "--jobs", r.jobs, "--policy", policy, "--out", segments}, r.cluster, r.extra)
	if _, err := b.command(ctx, b.path("muster"), args...); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	return b.judge(ctx, r.name, "qjudge", slices.Concat([]string{"-jobs", r.jobs, "-segments", segments}, r.judged)...)
}

// all runs several replays at once.
func (b *bench) all(ctx context.Context, runs []replay) ([]score, error) {
	scores := make([]score, len(runs))
	err := together(len(runs), func(i int) (err error) {
		scores[i], err = b.replay(ctx, runs[i])
		return err
	})
	return scores, err
}

const hour = 3600

func notPreemptive(ctx context.Context, b *bench) ([]line, error) {
	runs := []replay{replay{name: "philly fifo", jobs: b.trace("queue/phillyA.csv"), policy: fifo}.equal(64)}
	for _, hours := range []int{26, 28, 30, 33, 36} {
		runs = append(runs, replay{name: fmt.Sprintf("philly area %d h", hours), jobs: b.trace("queue/phillyA.csv"),
			policy: shortestArea(hours)}.equal(64))
	}
	s, err := b.all(ctx, runs)
	if err != nil {
		return nil, err
	}
	median := func(name string) float64 {
		var list []float64
		for _, one := range s[1:] {
			list = append(list, one[name])
		}
		slices.Sort(list)
		return list[len(list)/2] / hour
	}
	return []line{
		{"fifo: mean completion", s[0]["jct_mean"] / hour, "h", "7.24", none, none, false},
		{"shortest: mean completion", median("jct_mean"), "h", "3.62", 3.75, 3.60, false},
		{"p99 wait", median("wait_p99"), "h", "12.85", 13, none, false},
		{"p99 wait of gangs wider than 8", median("by_gpus/8+/wait_p99"), "h", "231", 50, 40, false},
	}, nil
}

func preemptivePhilly(ctx context.Context, b *bench) ([]line, error) {
	s, err := b.replay(ctx, replay{name: "philly preemptive", jobs: b.trace("queue/phillyA.csv"), policy: preemptive}.equal(64))
	if err != nil {
		return nil, err
	}
	return []line{
		{"mean completion", s["jct_mean"] / hour, "h", "2.79", 2.85, 2.79, false},
		{"p99 wait", s["wait_p99"] / hour, "h", "1.12", 2, none, false},
		{"p99 wait of gangs wider than 8", s["by_gpus/8+/wait_p99"] / hour, "h", "227", 24, 12, false},
		{"preemptions", s["preemptions"], "", "3481", 5000, 4000, false},
	}, nil
}

func nothingKnown(ctx context.Context, b *bench) ([]line, error) {
	s, err := b.all(ctx, []replay{
		replay{name: "muri 1 nothing known", jobs: b.trace("queue/muri_trace1.csv"), policy: srsf}.equal(8).with("--no-limits"),
		replay{name: "muri 3 nothing known", jobs: b.trace("queue/muri_trace3.csv"), policy: srsf}.equal(8).with("--no-limits"),
		replay{name: "philly nothing known", jobs: b.trace("queue/phillyA.csv"), policy: preemptive}.equal(64).with("--no-limits"),
		replay{name: "muri 3 nothing known, none starve", jobs: b.trace("queue/muri_trace3.csv"), policy: preemptive}.equal(8).with("--no-limits"),
	})
	if err != nil {
		return nil, err
	}
	return []line{
		{"muri_trace1: mean completion", s[0]["jct_mean"] / 1e6, "Ms", "Themis 1.82", 1.80, 1.70, false},
		{"muri_trace3: mean completion", s[1]["jct_mean"] / 1e6, "Ms", "Tiresias 0.347", 0.30, 0.265, false},
		{"  where wide gangs do not starve", s[3]["jct_mean"] / 1e6, "Ms", "", none, none, false},
		{"phillyA: mean completion", s[2]["jct_mean"] / hour, "h", "", 2.95, 2.83, false},
	}, nil
}

func limitsKnown(ctx context.Context, b *bench) ([]line, error) {
	s, err := b.all(ctx, []replay{
		replay{name: "muri 1", jobs: b.trace("queue/muri_trace1.csv"), policy: srsf}.equal(8),
		replay{name: "muri 3", jobs: b.trace("queue/muri_trace3.csv"), policy: srsf}.equal(8),
	})
	if err != nil {
		return nil, err
	}
	return []line{
		{"muri_trace1: mean completion", s[0]["jct_mean"] / 1e6, "Ms", "0.980 with run times", 1.06, none, false},
		{"muri_trace3: mean completion", s[1]["jct_mean"] / 1e3, "ks", "185.0 with run times", 186, none, false},
	}, nil
}

// sharing gives each user's queue its part of the cluster as quota, and compares with clusters of just those parts.
func sharing(ctx context.Context, b *bench) ([]line, error) {
	parts, err := readCSV(b.trace("queue/phillyA_shares.csv"))
	if err != nil {
		return nil, err
	}
	jobs, err := readCSV(b.trace("queue/phillyA.csv"))
	if err != nil {
		return nil, err
	}
	nodes := map[string]int{}
	policy := strings.Replace(preemptive, "fair_share = false", "fair_share = true", 1)
	for _, row := range parts[1:] {
		if nodes[row[0]], err = strconv.Atoi(row[1]); err != nil {
			return nil, fmt.Errorf("the part of %s: %w", row[0], err)
		}
		policy += fmt.Sprintf("queue %q {\n  gpus = %d\n}\n", row[0], 8*nodes[row[0]])
	}
	column := func(name string) int { return slices.Index(jobs[0], name) }
	all, own := jobs[:1:1], map[string][][]string{}
	for _, row := range jobs[1:] {
		user := row[column("user")]
		if gpus, err := strconv.Atoi(row[column("gpus")]); err != nil || gpus > 8*nodes[user] {
			continue // wider than its user's part
		}
		all = append(all, row)
		own[user] = append(own[user], row)
	}
	file, err := b.writeCSV("philly-shared.csv", all)
	if err != nil {
		return nil, err
	}
	runs := []replay{
		replay{name: "philly shared", jobs: file, policy: policy}.equal(64),
		replay{name: "philly common", jobs: file, policy: preemptive}.equal(64),
	}
	var users []string
	for _, row := range parts[1:] {
		user := row[0]
		if len(own[user]) == 0 {
			continue
		}
		file, err := b.writeCSV("philly-"+user+".csv", append(jobs[:1:1], own[user]...))
		if err != nil {
			return nil, err
		}
		users = append(users, user)
		runs = append(runs, replay{name: "philly alone " + user, jobs: file, policy: preemptive}.equal(nodes[user]))
	}
	s, err := b.all(ctx, runs)
	if err != nil {
		return nil, err
	}
	worst := 0.0
	for i, user := range users {
		worst = max(worst, s[0]["by_user/"+user+"/jct_mean"]/s[2+i]["jct_mean"])
	}
	return []line{
		{"worst user, shared over alone", worst, "×", "1.33 EASY, 4.12 FIFO", 1.03, 1.00, false},
		{"mean completion, over one queue", s[0]["jct_mean"] / s[1]["jct_mean"], "×", "", 1.03, 1.00, false},
		{"mean completion", s[0]["jct_mean"] / hour, "h", "", none, none, false},
		{"preemptions", s[0]["preemptions"], "", "", none, none, false},
	}, nil
}

// topology compares gangs that would like one leaf, or may not leave it, with such as are placed blind.
func topology(ctx context.Context, b *bench) ([]line, error) {
	var lines []line
	for _, p := range []struct{ name, policy string }{{"preemptive", preemptive}, {"shortest, EASY", shortestArea(30)}} {
		r := replay{jobs: b.trace("topology/topoT1_jobs.csv"), policy: p.policy}
		r.cluster = []string{"--nodes", b.trace("topology/topoT1_nodes.csv")}
		r.judged = []string{"-nodes", b.trace("topology/topoT1_nodes.csv"), "-topo", b.trace("topology/topoT1.csv")}
		blind, prefer := r, r.with("--topology", b.trace("topology/topoT1.csv"))
		within := prefer.with("--within", "leaf")
		blind.name, prefer.name, within.name = p.name+" blind", p.name+" prefer", p.name+" within"
		s, err := b.all(ctx, []replay{blind, prefer, within})
		if err != nil {
			return nil, err
		}
		const over = "topology/gpu_time_over_min_leaves"
		lines = append(lines,
			line{p.name + ": GPU time over the least leaves", s[1][over], "×", fmt.Sprintf("%.2f blind", s[0][over]), 0.10, 0.02, false},
			line{"mean completion over blind", s[1]["jct_mean"] / s[0]["jct_mean"], "×", "", 1.02, 1.00, false},
			line{"within: GPU time over the least leaves", s[2][over], "×", "", 0, 0, false},
			line{"mean completion over blind", s[2]["jct_mean"] / s[0]["jct_mean"], "×", "", 1.02, none, false})
	}
	return lines, nil
}

func readCSV(path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return csv.NewReader(f).ReadAll()
}

func (b *bench) writeCSV(name string, rows [][]string) (string, error) {
	var text strings.Builder
	w := csv.NewWriter(&text)
	if err := w.WriteAll(rows); err != nil {
		return "", err
	}
	return b.write(name, text.String())
}
