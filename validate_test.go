package muster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster"
)

// usual is a job that nothing is wrong with.
func usual() *muster.JobSpec {
	s := muster.DefaultJobSpec()
	s.Name = "train"
	g := muster.DefaultGroup()
	g.Task.Command = "nvidia-smi"
	g.Task.Resources.GPUs = 1
	s.Groups = []muster.Group{g}
	s.FillDefaults()
	return &s
}

func TestDefaultsOfASmallJobAreThoseOfTheJobFile(t *testing.T) {
	s := usual()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	g := s.Groups[0]
	if s.Priority != 50 || s.Queue != "default" || s.Type != muster.Batch || g.Name != "train" || g.Task.Name != "train" ||
		g.Count != 1 || g.Retry.Attempts != 0 || len(g.Retry.On) != 0 || g.Retry.Delay != 15*time.Second ||
		g.Retry.MaxDelay != 10*time.Minute || g.Checkpoint.Grace != 0 || g.Checkpoint.To != muster.ToMain ||
		g.Disconnect.StopAfter != time.Minute || g.Disconnect.Replace != muster.ReplaceAfterStop || g.Task.KillSignal != "SIGTERM" ||
		g.Task.KillTimeout != 30*time.Second || len(g.Task.SuccessCodes) != 1 || g.Task.Logs.MaxSize != 100*muster.MiB ||
		g.Task.Logs.MaxFiles != 5 || g.Task.Resources.MilliCores != 0 || g.Task.Resources.Memory != 0 {
		t.Errorf("defaults: %+v", s)
	}
	s.Groups[0].Retry.Attempts = 2
	s.Labels = []muster.Label{{Key: "z", Value: "1"}, {Key: "a", Value: "2"}}
	s.FillDefaults()
	if on := s.Groups[0].Retry.On; len(on) != 3 || s.Labels[0].Key != "a" {
		t.Errorf("retry.on = %v, labels = %v", on, s.Labels)
	}
}

func TestEachMistakeIsNamedWithItsField(t *testing.T) {
	for _, c := range []struct {
		field, message string
		mistake        func(s *muster.JobSpec, g *muster.Group)
	}{
		{"name", `"7b" can't be`, func(s *muster.JobSpec, _ *muster.Group) { s.Name = "7b" }},
		{"name", "can't be", func(s *muster.JobSpec, _ *muster.Group) { s.Name = strings.Repeat("a", 65) }},
		{"type", "not supported yet", func(s *muster.JobSpec, _ *muster.Group) { s.Type = 9 }},
		{"queue", "can't be the name", func(s *muster.JobSpec, _ *muster.Group) { s.Queue = "a//b" }},
		{"priority", "101", func(s *muster.JobSpec, _ *muster.Group) { s.Priority = 101 }},
		{"time_limit", "negative", func(s *muster.JobSpec, _ *muster.Group) { s.TimeLimit = -1 }},
		{"labels.1x", "key of a label", func(s *muster.JobSpec, _ *muster.Group) { s.Labels = []muster.Label{{Key: "1x"}} }},
		{"labels.a", "twice", func(s *muster.JobSpec, _ *muster.Group) { s.Labels = []muster.Label{{Key: "a"}, {Key: "a"}} }},
		{"", "no task", func(s *muster.JobSpec, _ *muster.Group) { s.Groups = nil }},
		{"", "at most 256 KiB", func(_ *muster.JobSpec, g *muster.Group) {
			g.Task.Command, g.Task.Script = "", strings.Repeat("x", 256<<10)
		}},
		{"groups[1].name", "two groups", func(s *muster.JobSpec, g *muster.Group) { s.Groups = append(s.Groups, *g) }},
		{"groups[1].count", "10001 ranks", func(s *muster.JobSpec, g *muster.Group) {
			other := *g
			other.Name, other.Count = "other", 10_000
			s.Groups = append(s.Groups, other)
		}},
		{"groups[0].name", "name of a group", func(_ *muster.JobSpec, g *muster.Group) { g.Name = "A" }},
		{"groups[0].count", "count 0", func(_ *muster.JobSpec, g *muster.Group) { g.Count = 0 }},
		{"groups[0].within", "not supported yet", func(_ *muster.JobSpec, g *muster.Group) { g.Within = "nvlink" }},
		{"groups[0].within", "domain", func(_ *muster.JobSpec, g *muster.Group) { g.Within = "a b" }},
		{"groups[0].constraint[0].attribute", "does not exist", func(_ *muster.JobSpec, g *muster.Group) {
			g.Constraints = []muster.Constraint{{Attribute: "zone", Operator: "=", Value: "x"}}
		}},
		{"groups[0].constraint[0].operator", "does not exist", func(_ *muster.JobSpec, g *muster.Group) {
			g.Constraints = []muster.Constraint{{Attribute: "label.zone", Operator: "==", Value: "x"}}
		}},
		{"groups[0].constraint[0].value", "regular expression", func(_ *muster.JobSpec, g *muster.Group) {
			g.Constraints = []muster.Constraint{{Attribute: "label.zone", Operator: "matches", Value: "("}}
		}},
		{"groups[0].retry.attempts", "-1", func(_ *muster.JobSpec, g *muster.Group) { g.Retry.Attempts = -1 }},
		{"groups[0].retry.on", "node", func(_ *muster.JobSpec, g *muster.Group) { g.Retry.On = []muster.Class{muster.ClassNode} }},
		{"groups[0].retry.exit_codes[1]", "256", func(_ *muster.JobSpec, g *muster.Group) { g.Retry.ExitCodes = []int{1, 256} }},
		{"groups[0].retry.exit_codes[0]", "success", func(_ *muster.JobSpec, g *muster.Group) { g.Retry.ExitCodes = []int{0} }},
		{"groups[0].retry.max_delay", "less than delay", func(_ *muster.JobSpec, g *muster.Group) { g.Retry.MaxDelay = 1 }},
		{"groups[0].checkpoint.signal", "SIGSTOP", func(_ *muster.JobSpec, g *muster.Group) { g.Checkpoint.Signal = "SIGSTOP" }},
		{"groups[0].checkpoint.signal", "no process can save", func(_ *muster.JobSpec, g *muster.Group) { g.Checkpoint.Signal = "SIGKILL" }},
		{"groups[0].disconnect.stop_after", "9s", func(_ *muster.JobSpec, g *muster.Group) { g.Disconnect.StopAfter = 9 * time.Second }},
		{"groups[0].disconnect.replace", "not supported yet", func(_ *muster.JobSpec, g *muster.Group) {
			g.Disconnect.Replace = muster.ReplaceImmediately
		}},
		{"groups[0].task", "nothing to run", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Command = "" }},
		{"groups[0].task.command", "a script and a command", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Script = "x" }},
		{"groups[0].task.command", "blank", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Command = "python train.py" }},
		{"groups[0].task.args[1]", "run-time value", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Args = []string{"a", "${HOME}"} }},
		{"groups[0].task.args[0]", "zero byte", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Args = []string{"a\x00"} }},
		{"groups[0].task.dir", "not absolute", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Dir = "data" }},
		{"groups[0].task.env.A=B", "environment variable", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Env = []muster.EnvVar{{Name: "A=B"}} }},
		{"groups[0].task.env.A", "UTF-8", func(_ *muster.JobSpec, g *muster.Group) {
			g.Task.Env = []muster.EnvVar{{Name: "A", Value: "\xff"}}
		}},
		{"groups[0].task.kill_signal", "TERM", func(_ *muster.JobSpec, g *muster.Group) { g.Task.KillSignal = "TERM" }},
		{"groups[0].task.kill_timeout", "negative", func(_ *muster.JobSpec, g *muster.Group) { g.Task.KillTimeout = -1 }},
		{"groups[0].task.success_codes[0]", "-1", func(_ *muster.JobSpec, g *muster.Group) { g.Task.SuccessCodes = []int{-1} }},
		{"groups[0].task.logs.max_size", "4KiB", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Logs.MaxSize = 0 }},
		{"groups[0].task.logs.max_files", "max_files 0", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Logs.MaxFiles = 0 }},
		{"groups[0].task.resources.gpus", "65", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Resources.GPUs = 65 }},
		{"groups[0].task.resources.cores", "negative", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Resources.MilliCores = -1 }},
		{"groups[0].task.resources.memory", "negative", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Resources.Memory = -1 }},
		{"groups[0].task.resources.gpu.model", "no GPU", func(_ *muster.JobSpec, g *muster.Group) {
			g.Task.Resources.GPUs, g.Task.Resources.Models = 0, []string{"H100"}
		}},
		{"groups[0].prefer", "domain", func(_ *muster.JobSpec, g *muster.Group) { g.Prefer = "a b" }},
		{"groups[0].patience", "nothing to wait for", func(_ *muster.JobSpec, g *muster.Group) { g.Patience = time.Minute }},
		{"groups[0].affinity[0].attribute", "does not exist", func(_ *muster.JobSpec, g *muster.Group) {
			g.Affinities = []muster.Affinity{{Attribute: "rack", Value: "r7", Weight: 50}}
		}},
		{"groups[0].affinity[0].weight", "weight 101", func(_ *muster.JobSpec, g *muster.Group) {
			g.Affinities = []muster.Affinity{{Attribute: "label.rack", Value: "r7", Weight: 101}}
		}},
		{"groups[0].spread[0].attribute", "does not exist", func(_ *muster.JobSpec, g *muster.Group) {
			g.Spreads = []muster.Spread{{Attribute: "rack"}}
		}},
		{"groups[0].checkpoint.every", "negative", func(_ *muster.JobSpec, g *muster.Group) { g.Checkpoint.Every = -1 }},
		{"groups[0].task.start", "not known", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Start = 9 }},
		{"groups[0].task.env_from_file[0]", "not absolute", func(_ *muster.JobSpec, g *muster.Group) { g.Task.EnvFromFile = []string{"x.env"} }},
		{"groups[0].task.upload[0]", "outside the folder", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Upload = []string{"a/../../b"} }},
		{"groups[0].task.upload[1]", "empty", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Upload = []string{"a", ""} }},
		{"groups[0].task.logs.path", "run-time value", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Logs.Path = "${HOME}/x" }},
		{"groups[0].task.resources.disk", "negative", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Resources.Disk = -1 }},
		{"groups[0].task.resources.gpu.share", "gpus is 2", func(_ *muster.JobSpec, g *muster.Group) {
			g.Task.Resources.GPUs, g.Task.Resources.Share = 2, 500
		}},
		{"groups[0].task.resources.gpu.share", "not a part", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Resources.Share = 1500 }},
		{"groups[0].task.resources.gpu.mig", "MIG profile", func(_ *muster.JobSpec, g *muster.Group) { g.Task.Resources.MIG = "small" }},
	} {
		s := usual()
		c.mistake(s, &s.Groups[0])
		err := s.Validate()
		if err == nil || err.Kind != muster.KindInvalid || err.Field != c.field || !strings.Contains(err.Message, c.message) {
			t.Errorf("want %q at %q, got %+v", c.message, c.field, err)
		}
	}
}

func TestWhatIsUnusualAndRightIsTaken(t *testing.T) {
	s := usual()
	g := &s.Groups[0]
	s.Priority, g.Task.KillTimeout, g.Retry.Delay, g.Retry.MaxDelay = 0, 0, 0, 0
	g.Task.Dir = "${task.dir}/x"
	g.Task.Command = "${task.dir}/run"
	g.Task.Args = []string{"$${HOME}", "rank ${rank} of ${ranks}"}
	g.Within = "topology/rack.1"
	g.Checkpoint = muster.Checkpoint{Signal: "SIGUSR2", To: muster.ToAll}
	s.FillDefaults()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if s.Priority != 0 || g.Task.KillTimeout != 0 {
		t.Error("a zero that was said was replaced")
	}
}
