package muster

import (
	"strings"
	"testing"
)

func TestModelIsAWholeWordOfTheDevicesName(t *testing.T) {
	for _, tc := range []struct {
		name, model string
		want        bool
	}{
		{"NVIDIA H100 80GB HBM3", "H100", true},
		{"NVIDIA H100 80GB HBM3", "h100", true},
		{"NVIDIA H100 80GB HBM3", "H10", false},
		{"NVIDIA H100 80GB HBM3", "H100 80GB", true},
		{"NVIDIA A100-SXM4-80GB", "A100", true},
		{"NVIDIA L40S", "L4", false},
		{"NVIDIA L40S", "L40", false},
		{"NVIDIA L4", "L4", true},
		{"NVIDIA GeForce RTX 4090", "rtx 4090", true},
		{"XL4 L4", "L4", true},
		{"NVIDIA L4", "", false},
	} {
		if got := ModelMatches(tc.name, tc.model); got != tc.want {
			t.Errorf("model %q in %q: %v, want %v", tc.model, tc.name, got, tc.want)
		}
	}
}

func TestNinetyFivePerCentOfTheNominalMemoryIsEnough(t *testing.T) {
	h100 := &GPU{Model: "NVIDIA H100 80GB HBM3", Memory: 79*GiB + 600*MiB}
	for _, tc := range []struct {
		r    Resources
		want bool
	}{
		{Resources{}, true},
		{Resources{MinMemory: 80 * GiB}, true},
		{Resources{MinMemory: 96 * GiB}, false},
		{Resources{Models: []string{"H200", "H100"}, MinMemory: 80 * GiB}, true},
		{Resources{Models: []string{"H200"}}, false},
	} {
		if got := tc.r.FitsGPU(h100); got != tc.want {
			t.Errorf("%+v: %v, want %v", tc.r, got, tc.want)
		}
	}
}

func TestConstraintsOnANode(t *testing.T) {
	n := &Node{
		Name: "gpu-07", Address: "10.0.0.7:7400", MilliCores: 128_000, Memory: 1024 * GiB, Fencing: "strong", Version: "0.1.3",
		Labels: []Label{{"driver", "535.104.05"}, {"rack", "r7"}, {"tier", "3"}, {"zone", "eu-1"}},
		GPUs: []GPU{{UUID: "GPU-0", Model: "NVIDIA A100-SXM4-80GB", Health: GPULost},
			{UUID: "GPU-1", Model: "NVIDIA H100 80GB HBM3", Health: GPUHealthy}},
	}
	for _, tc := range []struct {
		attribute string
		op        Operator
		value     string
		want      bool
	}{
		{"label.zone", "=", "eu-1", true},
		{"label.zone", "=", "eu-2", false},
		{"label.zone", "!=", "eu-2", true},
		{"label.absent", "!=", "eu-2", true},
		{"label.absent", "=", "", false},
		{"label.absent", "exists", "", false},
		{"label.zone", "exists", "", true},
		{"label.zone", "in", "eu-2, eu-1", true},
		{"label.zone", "in", "eu-2,eu-3", false},
		{"label.zone", "not_in", "eu-2,eu-3", true},
		{"label.zone", "not_in", "eu-1", false},
		{"label.absent", "not_in", "eu-1", true},
		{"label.absent", "in", "eu-1", false},
		{"label.rack", "matches", "^r[0-9]$", true},
		{"label.rack", "matches", "7", true},
		{"label.rack", "matches", "^7", false},
		{"label.tier", ">", "2", true},
		{"label.tier", ">", "10", false},
		{"label.zone", ">", "2", false},
		{"label.driver", "version", ">= 535, < 550", true},
		{"label.driver", "version", ">= 535.104.6", false},
		{"label.driver", "version", "535.104.05", true},
		{"label.zone", "version", ">= 1", false},
		{"node.name", "=", "gpu-07", true},
		{"node.name", "in", "gpu-06,gpu-07", true},
		{"node.cores", ">=", "128", true},
		{"node.cores", "<", "128", false},
		{"node.memory", ">=", "1TiB", true},
		{"node.memory", ">", "1TiB", false},
		{"node.memory", "=", "1024GiB", true},
		{"node.memory", "<=", "1099511627776", true},
		{"node.gpus", "=", "1", true},
		{"node.gpu_model", "matches", "H100", true},
		{"node.fencing", "=", "strong", true},
		{"node.version", "version", ">= 0.1, < 0.2", true},
		{"node.address", "exists", "", true},
		{"node.nonsense", "!=", "x", false},
		{"label.zone", "~", "x", false},
	} {
		c := Constraint{Attribute: tc.attribute, Operator: tc.op, Value: tc.value}
		if got := c.Holds(n); got != tc.want {
			t.Errorf("%s %s %q: %v, want %v", tc.attribute, tc.op, tc.value, got, tc.want)
		}
	}
}

func TestConstraintMistakesAreNamed(t *testing.T) {
	for _, tc := range []struct {
		c    Constraint
		want string
	}{
		{Constraint{"label.zone", "=", "eu-1"}, ""},
		{Constraint{"node.gpus", ">=", "8"}, ""},
		{Constraint{"node.gpu", ">=", "8"}, `attribute "node.gpu" does not exist`},
		{Constraint{"zone", "=", "8"}, `attribute "zone" does not exist`},
		{Constraint{"label.", "=", "8"}, `attribute "label." does not exist`},
		{Constraint{"label.zone", "==", "8"}, `operator "==" does not exist`},
		{Constraint{"label.zone", "matches", "("}, "not a regular expression"},
		{Constraint{"label.zone", "version", ">> 1"}, "not a range of versions"},
		{Constraint{"node.memory", ">", "many"}, "neither a number nor a size"},
		{Constraint{"node.memory", ">", "NaN"}, "neither a number nor a size"},
		{Constraint{"label.zone", "in", "a,,b"}, "empty element"},
		{Constraint{"label.zone", "exists", "x"}, "takes no value"},
	} {
		err := tc.c.Check()
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%+v: %v", tc.c, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%+v: %v, want %q", tc.c, err, tc.want)
		}
	}
}
