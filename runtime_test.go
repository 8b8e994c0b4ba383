package muster_test

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster"
	"pgregory.net/rapid"
)

func values(name string) (string, bool) {
	v, ok := map[string]string{"rank": "3", "job.name": "train", "task.dir": "/t"}[name]
	return v, ok
}

func TestReferencesAreFilledInAndTheRestIsText(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{"", ""},
		{"plain", "plain"},
		{"${rank}", "3"},
		{"a${rank}b${job.name}", "a3btrain"},
		{"$HOME and $$ and $", "$HOME and $$ and $"},
		{"$${HOME}", "${HOME}"},
		{"$${X:-y} ${rank}", "${X:-y} 3"},
		{"$$${rank}", "$3"},
		{"$$$${rank}", "$${rank}"},
		{"$$$$${rank}", "$$3"},
		{"%{http_code}", "%{http_code}"},
		{"{rank}", "{rank}"},
		{"$((MUSTER_RANK + 1))", "$((MUSTER_RANK + 1))"},
	} {
		got, err := muster.Expand(c.spec, values)
		if err != nil || got != c.want {
			t.Errorf("Expand(%q) = %q, %v; want %q", c.spec, got, err, c.want)
		}
	}
}

func TestBadReferencesSayWhatToWrite(t *testing.T) {
	for spec, want := range map[string]string{
		"${rank":      "without its }",
		"${HOME}":     "$${NAME}",
		"${rank + 1}": "no run-time value",
		"${}":         "names no value",
	} {
		if err := muster.CheckRuntime(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckRuntime(%q) = %v, want an error with %q", spec, err, want)
		}
	}
	for _, name := range muster.RuntimeNames {
		if err := muster.CheckRuntime("x ${" + name + "} y $${HOME}"); err != nil {
			t.Errorf("CheckRuntime with %s: %v", name, err)
		}
	}
}

func TestEscapedTextComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("${}ab%")), 0, 12, -1).Draw(t, "text")
		got, err := muster.Expand(muster.EscapeRuntime(text), values)
		if err != nil || got != text {
			t.Fatalf("%q escaped is %q, expanded %q, %v", text, muster.EscapeRuntime(text), got, err)
		}
		before := rapid.StringOfN(rapid.SampledFrom([]rune("${}ab")), 0, 6, -1).Draw(t, "before")
		joined := muster.JoinText([]muster.TextPart{{Text: before}, {Name: "rank"}, {Text: text}})
		if got, err := muster.Expand(joined, values); err != nil || got != before+"3"+text {
			t.Fatalf("%q expands to %q, %v; want %q", joined, got, err, before+"3"+text)
		}
	})
}
