package harness

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// Script is the submission of one job of one rank that runs a script.
func Script(name string, gpus int, script string) *wire.SubmitRequest {
	return submission(name, gpus, func(t *muster.Task) { t.Script = script })
}

// Command is the submission of one job of one rank that runs a program.
func Command(name string, gpus int, program string, args ...string) *wire.SubmitRequest {
	return submission(name, gpus, func(t *muster.Task) { t.Command, t.Args = program, args })
}

func submission(name string, gpus int, fill func(*muster.Task)) *wire.SubmitRequest {
	spec, group := muster.DefaultJobSpec(), muster.DefaultGroup()
	fill(&group.Task)
	group.Task.Resources = muster.Resources{GPUs: gpus, MilliCores: 100, Memory: 64 * muster.MiB}
	spec.Name, spec.Groups = name, []muster.Group{group}
	spec.FillDefaults()
	return &wire.SubmitRequest{Specs: []*wire.JobSpec{wire.JobSpecOf(&spec)}}
}
