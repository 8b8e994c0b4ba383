package main

import "context"

// experiment is a thing measured.
type experiment struct {
	name string
	run  func(context.Context, *bench) ([]line, error)
}

// publishedSeeds are those of the published placement results.
var publishedSeeds = []int{42, 43, 44, 45, 46, 47, 48, 49, 50, 51}

// experiments lists what is measured: all of it, or what takes half a minute.
func experiments(small bool) []experiment {
	var list []experiment
	for i := range workloads {
		w := &workloads[i]
		seeds := publishedSeeds
		if small {
			seeds = seeds[:1]
		}
		list = append(list, experiment{"placement " + w.name, func(ctx context.Context, b *bench) ([]line, error) {
			known, err := w.measure(ctx, b, seeds, true)
			if err != nil || small {
				return known, err
			}
			online, err := w.measure(ctx, b, seeds, false)
			return append(known, online...), err
		}})
	}
	list = append(list,
		experiment{"queue: limits known, preemptive (muri)", limitsKnown},
		experiment{"queue: phillyA, preemptive", preemptivePhilly},
		experiment{"topology T1", topology})
	if small {
		return list
	}
	return append(list,
		experiment{"queue: phillyA, not preemptive", notPreemptive},
		experiment{"queue: nothing known", nothingKnown},
		experiment{"queue: sharing must pay", sharing})
}
