package scheduler

import (
	"math"
	"testing"

	"github.com/musterhpc/muster"
)

func about(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

func TestWhatCompletesAPatternCostsNothing(t *testing.T) {
	p := newPacking([]shareDemand{{units: 60, weight: 10}, {units: 40, weight: 10}})
	if whole := p.worth(600) + p.worth(400); !about(whole, 1) {
		t.Errorf("0.6 and 0.4 of a GPU are worth %.3f of one together", whole)
	}
	beside, fresh := p.loss(400, 400), p.loss(1000, 400)
	if beside > fresh+1e-9 {
		t.Errorf("0.4 beside 0.6 costs %.3f, on a whole GPU %.3f", beside, fresh)
	}
	if spoilt := p.loss(500, 400); !about(spoilt, p.worth(500)-p.worth(100)) || p.worth(100) != 0 {
		t.Errorf("what is left of 0.5 after 0.4 is worth %.3f", p.worth(100))
	}
}

func TestPartsOfAGPUAreWorthNothingWhereNobodyAsksForShares(t *testing.T) {
	p := newPacking(nil)
	if p.worth(990) != 0 || p.worth(1000) != 1 {
		t.Errorf("0.99 is worth %.3f, a whole GPU %.3f", p.worth(990), p.worth(1000))
	}
}

// The duals are those of the optimum: no pattern is worth more than a GPU, and the mix is worth as many GPUs as it needs.
func TestTheDualsAreThoseOfTheLeastNumberOfGPUs(t *testing.T) {
	mix := []shareDemand{{20, 7}, {33, 9}, {47, 12}, {50, 3}, {65, 4}, {81, 2}}
	duals := cuttingStock(mix)
	best, _ := knapsack(mix, duals)
	if best[shareUnits] > 1+1e-6 {
		t.Errorf("a pattern is worth %.6f", best[shareUnits])
	}
	worth, space := 0.0, 0.0
	for i := range mix {
		worth += duals[i] * mix[i].weight
		space += float64(mix[i].units) * mix[i].weight / shareUnits
	}
	if worth < space-1e-6 || worth > 1.3*space {
		t.Errorf("the mix needs %.2f GPUs by volume and %.2f by its duals", space, worth)
	}
}

func TestAModelThatOthersDependOnHasAPrice(t *testing.T) {
	either, bound := []bool{true, true}, []bool{true, false}
	prices := modelPrices([]modelDemand{{either, 60}, {bound, 140}}, []float64{100, 100})
	if prices[0] <= 0 || prices[1] != 0 {
		t.Errorf("140 of 200 GPUs must be of the first model, of which there are 100: prices %v", prices)
	}
	if prices := modelPrices([]modelDemand{{either, 60}}, []float64{100, 100}); prices[0] != 0 || prices[1] != 0 {
		t.Errorf("nobody depends on a model: prices %v", prices)
	}
}

func TestASharePrefersTheGPUThatItCompletes(t *testing.T) {
	share := func(milli int) func(*muster.JobSpec) {
		return needs(func(r *muster.Resources) { r.GPUs, r.Share = 1, muster.MilliGPUs(milli) })
	}
	w := newWorld(t)
	w.node("n1", "H100*4")
	first := w.submit(share(600))
	w.place()
	second := w.submit(share(600))
	w.place()
	w.expect(first, "n1:0")
	w.expect(second, "n1:1")
	third := w.submit(share(400))
	w.place()
	w.expect(third, "n1:0")
	whole := w.submit(gpus(2))
	w.place()
	w.expect(whole, "n1:2,3")
}
