package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/wire"
)

func (a *app) validateCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "validate FILE…", Short: "check job files and agents' files, offline", Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if format != "text" && format != "gcc" && format != "json" {
				return muster.Errorf(muster.KindUsage, "--format %q: text, gcc or json", format)
			}
			if o := a.global.output; o != "" && o != "table" && o != "json" {
				return muster.Errorf(muster.KindUsage, "validate has no output %q", o).WithHint("One of: table, json")
			}
			asJSON := a.wantsJSON() || format == "json"
			var mistakes hcl.Diagnostics
			var specs []*wire.JobSpec
			failed := false
			for _, path := range args {
				source, name, err := readSource(a.io.in, path)
				if err != nil {
					return err
				}
				dir, err := fileDir(path)
				if err != nil {
					return err
				}
				var jobs []*muster.JobSpec
				var diagnostics hcl.Diagnostics
				if path != "-" && config.IsAgentFile(name, source) {
					_, diagnostics = config.Load(path)
				} else {
					jobs, diagnostics = jobfile.Parse(name, source, jobfile.Options{Dir: dir})
				}
				if asJSON && format != "gcc" {
					mistakes = append(mistakes, diagnostics...)
				} else if format == "gcc" {
					err = jobfile.WriteGCC(a.io.err, diagnostics)
				} else {
					err = jobfile.WriteText(a.io.err, name, source, diagnostics, a.textWidth(), colours(a.io.err))
				}
				if err != nil {
					return err
				}
				if diagnostics.HasErrors() {
					failed = true
					continue
				}
				for _, spec := range jobs {
					specs = append(specs, wire.JobSpecOf(spec))
				}
			}
			if failed && len(mistakes) > 0 {
				a.global.json = true
				return &invalidFiles{mistakes}
			}
			if failed {
				return alreadySaid{muster.KindInvalid}
			}
			return a.validated(specs, len(args))
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "of errors: text, gcc or json")
	cmd.Flags().StringVarP(&a.global.output, "output", "o", os.Getenv("MUSTER_OUTPUT"), "json: the jobs as POST /v1/jobs takes them")
	cmd.Flags().BoolVar(&a.global.json, "json", false, "the same as -o json")
	return cmd
}

func (a *app) validated(specs []*wire.JobSpec, files int) error {
	if a.global.output != "json" && !a.global.json {
		_, err := fmt.Fprintf(a.io.err, "%s in %s: valid\n", count(len(specs), "job"), count(files, "file"))
		return err
	}
	body, err := wire.SpecsJSON(specs...)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(a.io.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(json.RawMessage(body))
}
