package scheduler

import "slices"

// shareUnits is into how many parts a GPU is cut where the value of its parts is reckoned: shares are rounded up to hundredths.
const shareUnits = 100

// maxSizes bounds how many sizes of shares are looked at: those that ask for most.
const maxSizes = 25

// packing is what parts of a GPU are worth to the shares that are asked for, in GPUs.
//
// Sizes of shares are items, a GPU is a bin. The least number of bins for the mix is a linear program over patterns (sets of
// shares that fill a GPU), solved by column generation as in Gilmore and Gomory, "A linear programming approach to the
// cutting-stock problem" (Operations Research 9, 1961). Its duals say what each size is worth; the value of a free part is that
// of the best set of shares that fits into it. So what a share costs a GPU is nothing where the two complete a pattern
// of the best packing, and much where they spoil one.
type packing struct {
	value [shareUnits + 1]float64 // of so many free hundredths
}

// shareDemand is how often shares of a size are asked for.
type shareDemand struct {
	units  int
	weight float64
}

// unitsOf rounds a share up to whole units.
func unitsOf(milli int) int { return (milli*shareUnits + 999) / 1000 }

// worth is what so many free thousandths of a GPU are worth.
func (p *packing) worth(milli int) float64 { return p.value[milli*shareUnits/1000] }

// loss is what taking a share of a GPU with free thousandths costs, beside what the share itself is worth.
func (p *packing) loss(free, share int) float64 { return p.worth(free) - p.worth(free-share) }

// newPacking values the parts of a GPU for a mix of shares. Without any, only whole GPUs are worth something.
func newPacking(mix []shareDemand) packing {
	slices.SortFunc(mix, func(a, b shareDemand) int { // those that ask for most first
		x, y := a.weight*float64(a.units), b.weight*float64(b.units)
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return b.units - a.units
	})
	mix = mix[:min(len(mix), maxSizes)]
	slices.SortFunc(mix, func(a, b shareDemand) int { return a.units - b.units })
	var p packing
	if len(mix) > 0 {
		duals := cuttingStock(mix)
		p.value, _ = knapsack(mix, duals)
	}
	p.value[shareUnits] = 1
	return p
}

// knapsack gives the best value of each capacity, and the pattern of the full one.
func knapsack(mix []shareDemand, duals []float64) (best [shareUnits + 1]float64, pattern []float64) {
	var last [shareUnits + 1]int // item that was added last, from 1; 0: the capacity below is as good
	for c := 1; c <= shareUnits; c++ {
		best[c] = best[c-1]
		for i := range mix {
			if u := mix[i].units; u <= c {
				if v := best[c-u] + duals[i]; v > best[c]+1e-12 {
					best[c], last[c] = v, i+1
				}
			}
		}
	}
	pattern = make([]float64, len(mix))
	for c := shareUnits; c > 0; {
		if last[c] == 0 {
			c--
			continue
		}
		pattern[last[c]-1]++
		c -= mix[last[c]-1].units
	}
	return best, pattern
}

// maxPivots bounds the simplex; a mix of maxSizes sizes takes some hundred.
const maxPivots = 2000

// cuttingStock gives the worth of each size in GPUs: the duals of the least number of GPUs that hold the mix.
func cuttingStock(mix []shareDemand) []float64 {
	n := len(mix)
	inverse := make([][]float64, n) // of the basis; a column of the basis is a pattern
	use := make([]float64, n)       // how often each pattern of the basis is used
	for i := range mix {
		inverse[i] = make([]float64, n)
		inverse[i][i] = 1 / float64(shareUnits/mix[i].units)
		use[i] = mix[i].weight * inverse[i][i]
	}
	duals := make([]float64, n)
	column := make([]float64, n)
	for range maxPivots {
		for i := range duals {
			duals[i] = 0
			for k := range n {
				duals[i] += inverse[k][i]
			}
		}
		best, pattern := knapsack(mix, duals)
		if best[shareUnits] <= 1+1e-9 {
			break
		}
		leave := -1
		for k := range n {
			column[k] = 0
			for i := range n {
				column[k] += inverse[k][i] * pattern[i]
			}
			if column[k] > 1e-9 && (leave < 0 || use[k]/column[k] < use[leave]/column[leave]) {
				leave = k
			}
		}
		if leave < 0 {
			break
		}
		pivot := column[leave]
		for i := range n {
			inverse[leave][i] /= pivot
		}
		use[leave] /= pivot
		for k := range n {
			if f := column[k]; k != leave && f != 0 {
				for i := range n {
					inverse[k][i] -= f * inverse[leave][i]
				}
				use[k] -= f * use[leave]
			}
		}
	}
	for i := range duals {
		duals[i] = max(duals[i], 0)
	}
	return duals
}
