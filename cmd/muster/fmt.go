package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/spf13/cobra"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/jobfile"
	"github.com/musterhpc/muster/config/schema"
)

func (a *app) fmtCommand() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use: "fmt FILE…", Short: "lay out job files, queues files and agents' files as everybody's", Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			differ, invalid := false, false
			for _, path := range args {
				source, name, err := readSource(a.io.in, path)
				if err != nil {
					return err
				}
				laidOut, diagnostics := layOut(name, source)
				if diagnostics.HasErrors() {
					invalid = true
					if err := jobfile.WriteText(a.io.err, name, source, diagnostics, a.textWidth(), colours(a.io.err)); err != nil {
						return err
					}
					continue
				}
				changed := !bytes.Equal(source, laidOut)
				differ = differ || changed
				switch {
				case check && changed:
					_, err = fmt.Fprintln(a.io.out, name)
				case check:
				case path == "-":
					_, err = a.io.out.Write(laidOut)
				case changed:
					if err = replaceFile(path, laidOut); err == nil {
						_, err = fmt.Fprintln(a.io.out, name)
					}
				}
				if err != nil {
					return err
				}
			}
			switch {
			case invalid:
				return alreadySaid{muster.KindInvalid}
			case check && differ:
				return alreadySaid{muster.KindError}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "write nothing: name the files that would change, and exit with 1")
	return cmd
}

// layOut gives a file as it should stand, with its comments. What can't be read is left as it is.
func layOut(name string, source []byte) ([]byte, hcl.Diagnostics) {
	if body, diagnostics := schema.Parse(name, source); body == nil {
		return nil, diagnostics
	}
	lines := bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n"))
	laidOut := hclwrite.Format(lines)
	if n := len(laidOut); n > 0 && laidOut[n-1] != '\n' {
		laidOut = append(laidOut, '\n')
	}
	if body, _ := schema.Parse(name, laidOut); body == nil {
		return source, nil // the layout broke it: what people wrote is worth more
	}
	return laidOut, nil
}

// replaceFile writes a file as a whole, or not at all. A link stays one.
func replaceFile(path string, content []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, content, info.Mode().Perm(), renameio.WithExistingPermissions())
}
