package scheduler

import "math"

// The search for the prices of GPU models.
const (
	priceSteps   = 400
	priceStep    = 0.01
	priceSoftens = 0.05 // GPUs: a difference in price of so much makes a model e times less wanted
)

// modelDemand is how many GPUs are asked for by jobs that permit the same models.
type modelDemand struct {
	permits []bool // by model
	gpus    float64
}

// modelPrices says how scarce each model is, in GPUs: what a job that could do with another model takes from those that cannot.
//
// The mix, made as large as the cluster, is spread over the models that each job permits, in proportion to what there is of
// a model and to how cheap it is; the price of a model with more load than GPUs is raised, until no model's is. It is the
// tâtonnement of a market (Walras) with a softened choice. Where everything permits everything all prices are 0.
func modelPrices(demands []modelDemand, capacity []float64) []float64 {
	prices := make([]float64, len(capacity))
	var wanted, all float64
	for i := range demands {
		wanted += demands[i].gpus
	}
	for _, c := range capacity {
		all += c
	}
	if wanted == 0 || all == 0 || len(capacity) < 2 {
		return prices
	}
	load, part := make([]float64, len(capacity)), make([]float64, len(capacity))
	for range priceSteps {
		clear(load)
		for i := range demands {
			d := &demands[i]
			sum := 0.0
			for m := range capacity {
				part[m] = 0
				if d.permits[m] {
					part[m] = capacity[m] * math.Exp(-prices[m]/priceSoftens)
					sum += part[m]
				}
			}
			if sum == 0 {
				continue
			}
			for m := range capacity {
				load[m] += d.gpus / wanted * all * part[m] / sum
			}
		}
		for m := range capacity {
			if capacity[m] > 0 {
				prices[m] = max(0, prices[m]+priceStep*(load[m]/capacity[m]-1))
			}
		}
	}
	return prices
}
