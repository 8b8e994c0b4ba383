package harness

import (
	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/wire"
)

// Script is the submission of one job of one rank that runs a script.
func Script(name string, gpus int, script string) *wire.SubmitRequest {
	spec, group := muster.DefaultJobSpec(), muster.DefaultGroup()
	group.Task.Script = script
	group.Task.Resources = muster.Resources{GPUs: gpus, MilliCores: 100, Memory: 64 * muster.MiB}
	spec.Name, spec.Groups = name, []muster.Group{group}
	spec.FillDefaults()
	return &wire.SubmitRequest{Specs: []*wire.JobSpec{wire.JobSpecOf(&spec)}}
}
