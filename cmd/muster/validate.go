package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/config/queuefile"
	"github.com/musterhpc/muster/config/schema"
	"github.com/musterhpc/muster/wire"
)

// valid is what was found in files.
type valid struct {
	files, agents, queues int
	specs                 []*wire.JobSpec
}

func (a *app) validateCommand() *cobra.Command {
	var format string
	var vars varFlags
	cmd := &cobra.Command{
		Use: "validate FILE…", Short: "check job files, queues files and agents' files, offline", Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if format != "text" && format != "gcc" && format != "json" {
				return muster.Errorf(muster.KindUsage, "--format %q: text, gcc or json", format)
			}
			if o := a.global.output; o != "" && o != "table" && o != "json" {
				return muster.Errorf(muster.KindUsage, "validate has no output %q", o).WithHint("One of: table, json")
			}
			var options jobfile.Options
			if err := vars.read(&options); err != nil {
				return err
			}
			asJSON := format == "json" || a.wantsJSON() && format != "gcc"
			var found valid
			var mistakes hcl.Diagnostics
			for _, path := range args {
				source, name, err := readSource(a.io.in, path)
				if err != nil {
					return err
				}
				diagnostics, err := found.check(path, name, source, options)
				if err != nil {
					return err
				}
				mistakes = append(mistakes, diagnostics...)
				switch {
				case asJSON:
				case format == "gcc":
					err = jobfile.WriteGCC(a.io.err, diagnostics)
				default:
					err = jobfile.WriteText(a.io.err, name, source, diagnostics, a.textWidth(), colours(a.io.err), options.VarFiles...)
				}
				if err != nil {
					return err
				}
			}
			switch {
			case mistakes.HasErrors() && asJSON:
				a.global.json = true
				return &invalidFiles{mistakes}
			case mistakes.HasErrors():
				return alreadySaid{muster.KindInvalid}
			}
			return a.validated(&found)
		},
	}
	vars.declare(cmd.Flags())
	cmd.Flags().StringVar(&format, "format", "text", "of errors: text, gcc or json")
	cmd.Flags().StringVarP(&a.global.output, "output", "o", os.Getenv("MUSTER_OUTPUT"), "json: the jobs as POST /v1/jobs takes them")
	cmd.Flags().BoolVar(&a.global.json, "json", false, "the same as -o json")
	return cmd
}

// check reads a file as what it is.
func (v *valid) check(path, name string, source []byte, options jobfile.Options) (hcl.Diagnostics, error) {
	v.files++
	switch {
	case path != "-" && config.IsAgentFile(name, source):
		v.agents++
		_, diagnostics := config.Load(path)
		return diagnostics, nil
	case queuefile.IsQueueFile(name, source):
		v.queues++
		_, diagnostics := queuefile.Parse(name, source)
		return diagnostics, nil
	}
	if err := here(&options, path); err != nil {
		return nil, err
	}
	jobs, diagnostics := jobfile.Parse(name, source, options)
	for _, spec := range jobs {
		v.specs = append(v.specs, wire.JobSpecOf(spec))
	}
	return diagnostics, nil
}

func (a *app) validated(found *valid) error {
	if a.wantsJSON() {
		body, err := wire.SpecsJSON(found.specs...)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.io.out, "%s\n", body)
		return err
	}
	var what []string
	for _, one := range []struct {
		n    int
		noun string
	}{{len(found.specs), "job"}, {found.queues, "queues file"}, {found.agents, "agent's file"}} {
		if one.n > 0 {
			what = append(what, count(one.n, one.noun))
		}
	}
	_, err := fmt.Fprintf(a.io.err, "%s in %s: valid\n", strings.Join(what, ", "), count(found.files, "file"))
	return err
}

// place is where a mistake is, for programs.
func place(d *hcl.Diagnostic) (file string, line, column int) {
	at := schema.At(d)
	if at.Filename == "" {
		return "", 0, 0
	}
	return at.Filename, at.Start.Line, at.Start.Column
}
