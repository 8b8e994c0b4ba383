package muster

import (
	"fmt"
	"slices"
	"strings"
)

// RuntimeNames are the values that only the worker knows. They may stand in a task's script, command, args, env and dir as
// ${NAME}; see SplitText for how such text is written.
var RuntimeNames = []string{
	"job.id", "job.name", "attempt", "group", "rank", "ranks", "node.name", "node.ip", "task.dir", "checkpoint.dir",
}

// TextPart is a piece of text, or, when Name is set, a reference to a run-time value.
type TextPart struct {
	Text string
	Name string
}

// SplitText reads a string of a spec that may hold references. An odd number of dollars before "{" is a reference, an even
// number is text, and two dollars there stand for one: "${rank}" refers, "$${HOME}" is the text ${HOME}, "$$${rank}" is a
// dollar and then the rank. Dollars that no "{" follows stand for themselves. A reference that is not closed or is
// empty is an error; names are not looked at.
func SplitText(s string) ([]TextPart, error) {
	var parts []TextPart
	var text strings.Builder
	for rest := s; ; {
		i := strings.Index(rest, "${")
		if i < 0 {
			text.WriteString(rest)
			break
		}
		first := i
		for first > 0 && rest[first-1] == '$' {
			first--
		}
		dollars := i - first + 1
		text.WriteString(rest[:first])
		text.WriteString(rest[first : first+dollars/2])
		rest = rest[i+2:]
		if dollars%2 == 0 {
			text.WriteByte('{')
			continue
		}
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return nil, fmt.Errorf("%q has a ${ without its }; text is written $${", clip(s))
		}
		if end == 0 {
			return nil, fmt.Errorf("%q has a ${} that names no value; text is written $${", clip(s))
		}
		if text.Len() > 0 {
			parts = append(parts, TextPart{Text: text.String()})
			text.Reset()
		}
		parts = append(parts, TextPart{Name: rest[:end]})
		rest = rest[end+1:]
	}
	if text.Len() > 0 {
		parts = append(parts, TextPart{Text: text.String()})
	}
	return parts, nil
}

// JoinText writes parts so that SplitText reads the same again.
func JoinText(parts []TextPart) string {
	var out strings.Builder
	for i, p := range parts {
		if p.Name != "" {
			out.WriteString("${" + p.Name + "}")
			continue
		}
		follows := i+1 < len(parts) && (parts[i+1].Name != "" || strings.HasPrefix(parts[i+1].Text, "{"))
		dollars := 0
		for j := 0; j <= len(p.Text); j++ {
			if j < len(p.Text) && p.Text[j] == '$' {
				dollars++
				continue
			}
			if j < len(p.Text) && p.Text[j] == '{' || j == len(p.Text) && follows {
				dollars *= 2
			}
			out.WriteString(strings.Repeat("$", dollars))
			dollars = 0
			if j < len(p.Text) {
				out.WriteByte(p.Text[j])
			}
		}
	}
	return out.String()
}

// EscapeRuntime writes text that holds no references: Expand gives it back as it was.
func EscapeRuntime(text string) string { return JoinText([]TextPart{{Text: text}}) }

// CheckRuntime says whether all references in s are known, with what to write instead.
func CheckRuntime(s string) error {
	_, err := Expand(s, func(name string) (string, bool) { return "", slices.Contains(RuntimeNames, name) })
	return err
}

// Expand fills in the references of s; see SplitText. A name that lookup doesn't know is an error.
func Expand(s string, lookup func(name string) (string, bool)) (string, error) {
	if !strings.Contains(s, "${") {
		return s, nil
	}
	parts, err := SplitText(s)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range parts {
		if p.Name == "" {
			out.WriteString(p.Text)
			continue
		}
		value, known := lookup(p.Name)
		if !known {
			return "", fmt.Errorf("${%s} is no run-time value (%s); the shell's own are written $NAME or $${NAME}",
				clip(p.Name), strings.Join(RuntimeNames, ", "))
		}
		out.WriteString(value)
	}
	return out.String(), nil
}

// clip keeps an error to one readable line.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
