package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/config/queuefile"
)

func (a *app) simulateCommand() *cobra.Command {
	return group("simulate", "replay a trace through the scheduler, in virtual time", a.simulateQueueCommand(), a.simulatePlacementCommand())
}

// policyFile reads a queues file; nil for none.
func (a *app) policyFile(path string) (*queuefile.File, error) {
	if path == "" {
		return nil, nil
	}
	source, name, err := readSource(a.io.in, path)
	if err != nil {
		return nil, err
	}
	file, diagnostics := queuefile.Parse(name, source)
	if len(diagnostics) > 0 {
		if err := jobfile.WriteText(a.io.err, name, source, diagnostics, a.textWidth(), colours(a.io.err)); err != nil {
			return nil, err
		}
	}
	if diagnostics.HasErrors() {
		return nil, alreadySaid{muster.KindInvalid}
	}
	return file, nil
}

// writeOut writes a simulation's file: complete, or not at all under its name.
func writeOut(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return muster.Errorf(muster.KindUsage, "--out: %v", err)
	}
	err = write(f)
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// bar shows how far a simulation is, on a terminal only. name stands before it.
func (a *app) bar(name string) func(done, of int) {
	columns := width(a.io.err)
	if columns == 0 {
		return func(int, int) {}
	}
	shown := -1
	return func(done, of int) {
		percent := 100
		if of > 0 {
			percent = done * 100 / of
		}
		if percent == shown {
			return
		}
		shown = percent
		cells := max(10, min(40, columns-len(name)-12))
		full := cells * percent / 100
		fmt.Fprintf(a.io.err, "\r%s [%s%s] %3d %%", name, strings.Repeat("#", full), strings.Repeat(".", cells-full), percent)
		if done == of {
			fmt.Fprintf(a.io.err, "\r%s\r", strings.Repeat(" ", cells+len(name)+10))
		}
	}
}

// simulatedOutput says whether a simulation's result is for a program; a form that it does not have is refused.
func (a *app) simulatedOutput() (asJSON bool, err error) {
	switch o := a.global.output; {
	case a.global.json || o == "json":
		return true, nil
	case o == "" || o == "table":
		return false, nil
	default:
		return false, muster.Errorf(muster.KindUsage, "simulate has no output %q", o).WithHint("One of: table, json")
	}
}

// comparison reads --compare: a policy file, or a number of nodes.
func comparison(value string) (policy string, nodes int, err error) {
	if value == "" {
		return "", 0, nil
	}
	if n, err := strconv.Atoi(value); err == nil {
		if n < 1 {
			return "", 0, muster.Errorf(muster.KindUsage, "--compare %d: at least one node", n)
		}
		return "", n, nil
	}
	if _, err := os.Stat(value); err != nil {
		return "", 0, muster.Errorf(muster.KindUsage, "--compare %s is neither a number of nodes nor a policy file: %v", value, err)
	}
	return value, 0, nil
}
