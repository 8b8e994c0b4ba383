package schema

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// maxShown bounds what is printed with its source: each walks the file up to its line, and nobody reads more.
const maxShown = 50

// WriteText prints diagnostics with the lines they are about. sources are the files by the names they were parsed under;
// width 0 does not wrap.
func WriteText(w io.Writer, sources map[string][]byte, diags hcl.Diagnostics, width uint, color bool) error {
	if more := len(diags) - maxShown; more > 0 {
		diags = append(diags[:maxShown:maxShown], &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "And more", Detail: fmt.Sprintf("There are %d more mistakes.", more)})
	}
	files := map[string]*hcl.File{}
	for _, d := range diags {
		if d.Subject == nil || files[d.Subject.Filename] != nil {
			continue
		}
		if src, ok := sources[d.Subject.Filename]; ok {
			files[d.Subject.Filename] = &hcl.File{Bytes: src, Nav: context(d.Subject.Filename, src)}
		}
	}
	wrapped := make(hcl.Diagnostics, len(diags))
	for i, d := range diags {
		c := *d
		c.Detail = wrap(d.Detail, int(width))
		wrapped[i] = &c
	}
	return hcl.NewDiagnosticTextWriter(w, files, 0, color).WriteDiagnostics(wrapped)
}

// wrap breaks prose at blanks. What two blanks set apart is something to write: it stays in one piece. Indented lines stay.
func wrap(text string, width int) string {
	if width == 0 {
		return text
	}
	var out strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			out.WriteByte('\n')
		}
		if strings.HasPrefix(line, " ") {
			out.WriteString(line)
			continue
		}
		column := 0
		for j, piece := range strings.Split(line, "  ") {
			words := strings.Split(piece, " ")
			if j%2 == 1 {
				words = []string{piece}
			}
			for k, word := range words {
				gap := " "
				if k == 0 && j > 0 {
					gap = "  "
				}
				n := utf8.RuneCountInString(word)
				switch {
				case column == 0:
				case column+len(gap)+n > width && j%2 == 1:
					out.WriteString("\n  ")
					column = 2
				case column+len(gap)+n > width:
					out.WriteByte('\n')
					column = 0
				default:
					out.WriteString(gap)
					column += len(gap)
				}
				out.WriteString(word)
				column += n
			}
		}
	}
	return out.String()
}

// A wholeFile is the Extra of a diagnostic that is about a file and no place in it.
type wholeFile string

// About makes an error about a file as a whole.
func About(file, summary, format string, args ...any) *hcl.Diagnostic {
	d := problem(nil, summary, format, args...)
	d.Extra = wholeFile(file)
	return d
}

// At is the place of a diagnostic: the beginning of the file for one that is about all of it. Its file is "" for what was said
// on the command line.
func At(d *hcl.Diagnostic) hcl.Range {
	if d.Subject != nil {
		return *d.Subject
	}
	name, _ := d.Extra.(wholeFile)
	return hcl.Range{Filename: string(name), Start: hcl.InitialPos, End: hcl.InitialPos}
}

// WriteGCC prints a line for each diagnostic, as compilers do: "file:line:col: error: …".
func WriteGCC(w io.Writer, diags hcl.Diagnostics) error {
	for _, d := range diags {
		at := At(d)
		severity := "error"
		if d.Severity == hcl.DiagWarning {
			severity = "warning"
		}
		if at.Filename == "" { // of the command line
			if _, err := fmt.Fprintf(w, "%s: %s: %s\n", severity, d.Summary, strings.Join(strings.Fields(d.Detail), " ")); err != nil {
				return err
			}
			continue
		}
		text := d.Summary + ": " + strings.Join(strings.Fields(d.Detail), " ")
		if _, err := fmt.Fprintf(w, "%s:%d:%d: %s: %s\n", at.Filename, at.Start.Line, at.Start.Column, severity, text); err != nil {
			return err
		}
	}
	return nil
}
