package simulation

import (
	"testing"
	"time"
)

func TestTheSameSeedRunsTheSame(t *testing.T) {
	p := NewPlan(3, time.Minute)
	if first, second := Run(p, Bugs{}, nil), Run(p, Bugs{}, nil); first != second {
		t.Fatalf("two runs of one plan differ:\n%+v\n%+v", first, second)
	}
}
