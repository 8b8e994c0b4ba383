package main

import (
	"fmt"
	"math"
	"strings"
)

// line is a number of ours beside others'.
type line struct {
	what      string
	value     float64
	unit      string
	published string // "" = nothing
	must, aim float64
	higher    bool // is better
}

// none stands where there is no bar.
var none = math.NaN()

func (l line) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-34s %10s", l.what, l.number(l.value))
	if !math.IsNaN(l.must) {
		fmt.Fprintf(&b, "   must %s", l.number(l.must))
	}
	if !math.IsNaN(l.aim) {
		fmt.Fprintf(&b, "   aim %s", l.number(l.aim))
	}
	if l.published != "" {
		fmt.Fprintf(&b, "   published %s", l.published)
	}
	switch {
	case math.IsNaN(l.must):
	case !l.reaches(l.must):
		b.WriteString("   MISSED")
	case math.IsNaN(l.aim) || l.reaches(l.aim):
		b.WriteString("   ok, aim")
	default:
		b.WriteString("   ok")
	}
	return b.String()
}

// reaches compares as it is shown: a bar that reads the same is reached.
func (l line) reaches(bar float64) bool {
	if l.number(l.value) == l.number(bar) {
		return true
	}
	return l.higher && l.value > bar || !l.higher && l.value < bar
}

func (l line) number(v float64) string {
	switch {
	case l.unit == "":
		return fmt.Sprintf("%.0f", v)
	case l.unit == "×":
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.2f %s", v, l.unit)
}
