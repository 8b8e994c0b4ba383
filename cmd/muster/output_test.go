package main

import (
	"slices"
	"testing"
)

// A list fits the terminal: long columns are shortened, then those in the middle left out; names, states and reasons stay.
func TestListsFitTheTerminal(t *testing.T) {
	full := []int{2, 30, 4, 7, 9, 4, 9, 4, 90} // as ps has them; the state is the fifth
	for _, c := range []struct {
		columns int
		want    []int
	}{
		{200, []int{2, 30, 4, 7, 9, 4, 9, 4, 90}},
		{140, []int{2, 30, 4, 7, 9, 4, 9, 4, 55}},
		{100, []int{2, 23, 4, 7, 9, 4, 9, 4, 22}},
		{60, []int{2, 12, 4, 0, 9, 0, 0, 0, 25}},
		{30, []int{2, 0, 0, 0, 9, 0, 0, 0, 20}},
	} {
		widths := slices.Clone(full)
		fit(widths, c.columns, 4)
		if !slices.Equal(widths, c.want) {
			t.Errorf("in %d columns: %v, want %v", c.columns, widths, c.want)
		}
	}
}

// What nobody needs for understanding goes before what was asked for: the UUID before the job.
func TestAListDoesWithoutItsLeastColumns(t *testing.T) {
	gpus := table{header: []string{"GPU", "MODEL", "MEMORY", "HEALTH", "JOB", "UUID"}, state: 3, least: []int{5, 2, 1}, rows: [][]string{
		{"w1/0", "H100", "80GiB", "lost: no longer in the machine", "train-7b (7) of ann", "GPU-5fc7b62d-6f5f-701b-9eea-a8c3cbf64473"}}}
	for columns, want := range map[int][]int{200: {4, 5, 6, 30, 19, 40}, 80: {4, 5, 6, 30, 19, 0}, 60: {4, 0, 0, 30, 19, 0}, 50: {4, 0, 0, 23, 19, 0}} {
		if got := gpus.widths(columns); !slices.Equal(got, want) {
			t.Errorf("in %d columns: %v, want %v", columns, got, want)
		}
	}
}
