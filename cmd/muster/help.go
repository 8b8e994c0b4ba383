package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpGroups are the verbs as `muster --help` shows them; those of a noun are listed in one column.
var helpGroups = []struct {
	title string
	verbs []string
}{
	{"Jobs", []string{"run", "ps", "show", "why", "logs", "wait", "cancel", "hold", "release", "priority", "requeue", "rerun", "events", "validate", "fmt"}},
	{"Cluster", []string{"gpus", "queue", "node", "server", "simulate"}},
	{"This machine", []string{"dev", "agent", "whoami", "config", "completion", "version", "help"}},
}

const helpEnd = `
On a terminal lists are tables; elsewhere they are tab-separated, without a header. -o json is for programs.
Exit codes: 0 ok · 1 error · 2 usage · 3 invalid file · 4 denied · 5 not found · 6 conflict · 7 unreachable · 8 infeasible;
            run and wait: the job's own · 120 cancelled · 122 time limit · 123 held · 124 --timeout · 125 muster itself · 130 detached
`

// usageLine is how a verb is called.
func usageLine(cmd *cobra.Command) string {
	if parent := cmd.Parent(); parent != nil {
		return parent.CommandPath() + " " + cmd.Use
	}
	return cmd.Use + " VERB"
}

// helpText is what --help prints.
func helpText(cmd *cobra.Command) string {
	var b strings.Builder
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	fmt.Fprintf(&b, "%s\n\nUsage: %s\n", about, usageLine(cmd))
	switch {
	case !cmd.HasParent():
		for _, group := range helpGroups {
			fmt.Fprintf(&b, "\n%s\n", group.title)
			for _, name := range group.verbs {
				if verb, _, err := cmd.Find([]string{name}); err == nil && verb != cmd {
					fmt.Fprintf(&b, "  %-10s %s\n", name, verb.Short)
				}
			}
		}
	case cmd.HasAvailableSubCommands():
		b.WriteString("\nVerbs\n")
		for _, verb := range cmd.Commands() {
			if verb.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-12s %s\n", verb.Name(), verb.Short)
			}
		}
	}
	flagLines(&b, "Flags", cmd.NonInheritedFlags())
	flagLines(&b, "Flags of every verb", cmd.InheritedFlags())
	if !cmd.HasParent() {
		b.WriteString(helpEnd)
	}
	return b.String()
}

// flagLines prints a line for each flag that isn't hidden.
func flagLines(b *strings.Builder, title string, flags *pflag.FlagSet) {
	var lines [][2]string
	width := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		name := "    --" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", --" + f.Name
		}
		what := f.Usage
		switch f.Value.Type() {
		case "bool":
		case "int", "int64", "uint32":
			name += " N"
		default:
			name += " …"
		}
		switch f.DefValue {
		case "", "0", "false", "[]":
		default:
			what += " (" + f.DefValue + ")"
		}
		width = max(width, len([]rune(name)))
		lines = append(lines, [2]string{name, what})
	})
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, line := range lines {
		fmt.Fprintf(b, "  %s%s  %s\n", line[0], strings.Repeat(" ", width-len([]rune(line[0]))), line[1])
	}
}
