package main

import (
	"context"
	"fmt"
)

// workload is a placement experiment: what was published of it and what is to be reached, at 100 % and at the end.
type workload struct {
	name           string
	fgd, must, aim [2]float64
}

var workloads = []workload{
	{"default", [2]float64{95.23, 95.39}, [2]float64{95.8, 95.9}, [2]float64{96.15, 96.25}},
	{"multigpu20", [2]float64{95.53, 95.65}, [2]float64{96.35, 96.45}, [2]float64{96.65, 96.75}},
	{"gpushare40", [2]float64{93.96, 94.15}, [2]float64{94.3, 94.45}, [2]float64{94.75, 94.9}},
	{"gpuspec10", [2]float64{94.66, 94.95}, [2]float64{95.7, 95.8}, [2]float64{96.1, 96.25}},
	{"cpu100", [2]float64{95.21, 95.35}, [2]float64{95.8, 95.9}, [2]float64{96.15, 96.25}},
}

const openbNodes = "openb/openb_node_list_gpu_node.csv"

// measure places the streams of some seeds, with the mix known or learnt from what arrives.
func (w *workload) measure(ctx context.Context, b *bench, seeds []int, known bool) ([]line, error) {
	pods := b.trace("openb/openb_pod_list_" + w.name + ".csv")
	nodes := b.trace(openbNodes)
	full, end, avoidable := make([]float64, len(seeds)), make([]float64, len(seeds)), make([]float64, len(seeds))
	err := together(len(seeds), func(i int) error {
		name := fmt.Sprintf("%s-%d-%v", w.name, seeds[i], known)
		stream, placements := b.path(name+".stream"), b.path(name+".placements")
		seed := fmt.Sprint(seeds[i])
		if _, err := b.command(ctx, b.path("fgdgen"), "-nodes", nodes, "-pods", pods, "-seed", seed, "-tune", "1.3", "-out", stream); err != nil {
			return err
		}
		args := []string{"simulate", "placement", "--nodes", nodes, "--arrivals", stream, "--seed", seed, "--out", placements}
		if known {
			args = append(args, "--history", pods)
		}
		if _, err := b.command(ctx, b.path("muster"), args...); err != nil {
			return err
		}
		s, err := b.judge(ctx, name, "fgdjudge", "-nodes", nodes, "-stream", stream, "-placements", placements)
		full[i], end[i], avoidable[i] = s["alloc_at_100"], s["alloc_final"], s["avoidable_rejections"]
		return err
	})
	if err != nil {
		return nil, err
	}
	how := "mix known"
	if !known {
		how = "learnt online"
	}
	lines := []line{
		{"GPUs given out at 100 %, " + how, mean(full), "%", fmt.Sprintf("FGD %.2f", w.fgd[0]), w.must[0], w.aim[0], true},
		{"at the end", mean(end), "%", fmt.Sprintf("FGD %.2f", w.fgd[1]), w.must[1], w.aim[1], true},
	}
	if sum := mean(avoidable) * float64(len(seeds)); sum > 0 {
		lines = append(lines, line{"rejected though there was room", sum, "", "", 0, 0, false})
	}
	return lines, nil
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, v := range list {
		sum += v
	}
	return sum / float64(len(list))
}
