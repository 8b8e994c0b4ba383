package muster

import "fmt"

// unbuilt is what a spec can say and no part of muster acts on yet. A row goes when its field is honoured: nothing else
// refuses it.
var unbuilt = []struct {
	field string // below groups[i]; see Validate
	word  string
	used  func(*Group) bool
}{
	{"within", `within = "nvlink"`, func(g *Group) bool { return g.Within == "nvlink" }},
	{"prefer", `prefer = "nvlink"`, func(g *Group) bool { return g.Prefer == "nvlink" }},
	{"mixed_models", "mixed_models = true", func(g *Group) bool { return g.MixedModels }},
	{"preemptible", "preemptible = false", func(g *Group) bool { return g.OnlyQuota }},
	{"affinity[0]", "affinity", func(g *Group) bool { return len(g.Affinities) > 0 }},
	{"spread[0]", "spread", func(g *Group) bool { return len(g.Spreads) > 0 }},
	{"checkpoint.every", "checkpoint.every", func(g *Group) bool { return g.Checkpoint.Every != 0 }},
	{"disconnect.replace", `replace = "immediately"`, func(g *Group) bool { return g.Disconnect.Replace == ReplaceImmediately }},
	{"task.upload", "upload", func(g *Group) bool { return len(g.Task.Upload) > 0 }},
	{"task.resources.disk", "resources.disk", func(g *Group) bool { return g.Task.Resources.Disk != 0 }},
	{"task.resources.gpu.mig", "gpu.mig", func(g *Group) bool { return g.Task.Resources.MIG != "" }},
}

// Unbuilt gives an error for each thing that the spec says and that is not supported yet. Their fields are paths as Validate's.
func (s *JobSpec) Unbuilt() []*Error {
	var out []*Error
	for i := range s.Groups {
		for _, u := range unbuilt {
			if u.used(&s.Groups[i]) {
				out = append(out, &Error{Kind: KindInvalid, Message: u.word + " is not supported yet", Field: fmt.Sprintf("groups[%d].%s", i, u.field)})
			}
		}
	}
	return out
}

// UnbuiltWords gives what Unbuilt refuses, in the job file's words.
func UnbuiltWords() []string {
	var out []string
	for _, u := range unbuilt {
		out = append(out, u.word)
	}
	return out
}
