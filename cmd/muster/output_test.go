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
