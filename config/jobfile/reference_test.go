package jobfile

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhpc/muster"
	"github.com/musterhpc/muster/config/schema"
)

// The pages of docs/ that say what may stand in a job file are written from the tables that read it. Between these lines
// nothing is written by hand:
//
//	go test ./config/jobfile -run Pages -update
const (
	generated    = "<!-- From here on written by: go test ./config/jobfile -run Pages -update -->\n"
	generatedEnd = "<!-- Up to here. -->\n"
)

func TestPagesSayWhatTheTablesRead(t *testing.T) {
	for name, write := range map[string]func(*strings.Builder){"jobfile.md": writeReference, "attributes.md": writeAttributes} {
		path := filepath.Join("..", "..", "docs", name)
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, ok := strings.Cut(string(page), generated)
		_, after, ok2 := strings.Cut(rest, generatedEnd)
		if !ok || !ok2 {
			t.Fatalf("%s has no place for what is written from the tables", name)
		}
		var out strings.Builder
		out.WriteString(before + generated)
		write(&out)
		out.WriteString(generatedEnd + after)
		if updating() {
			if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(string(page), out.String()); diff != "" && !updating() {
			t.Errorf("docs/%s is not what the tables say; write it with -update. -page +tables\n%s", name, diff)
		}
	}
}

// updating says whether the flag -update was given; it is declared beside the golden files.
func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

func writeReference(out *strings.Builder) {
	var later []string
	seen := map[*schema.Body]bool{}
	var body func(title string, b *schema.Body, doc string)
	body = func(title string, b *schema.Body, doc string) {
		fmt.Fprintf(out, "\n### %s\n\n%s\n", title, sentence(doc))
		if rows := attributeRows(b, &later, title); rows != "" {
			out.WriteString("\n| argument | value | default | |\n|---|---|---|---|\n" + rows)
		}
		if rows := blockRows(b, &later, title); rows != "" {
			out.WriteString("\n| block | |\n|---|---|\n" + rows)
		}
		for i := range b.Blocks {
			if inner := &b.Blocks[i]; !inner.Later && inner.Body != nil && !seen[inner.Body] {
				seen[inner.Body] = true
				if inner.Body == &jobTable {
					continue
				}
				body(heading(inner), inner.Body, inner.Doc)
			}
		}
	}
	own := schema.Body{Attrs: jobTable.Attrs[:len(jobTable.Attrs)-len(groupTable.Attrs)], Blocks: jobTable.Blocks[:len(jobTable.Blocks)-len(groupTable.Blocks)]}
	seen[&groupTable] = true
	body("job \"NAME\"", &own, "What is submitted. A job without group blocks is its own group: what may stand in a group may stand in it.")
	body("group \"NAME\"", &groupTable, "Equal ranks. Groups are needed for two or more roles only.")
	body("variable \"NAME\"", &variableTable, "At the top of the file: a value given with --var NAME=VALUE, --var-file FILE or MUSTER_VAR_NAME; in expressions it is var.NAME.")

	out.WriteString("\n### Functions\n\n| | gives |\n|---|---|\n")
	for _, f := range pure {
		fmt.Fprintf(out, "| `%s` | `%s` |\n", cell(f.call), cell(f.doc))
	}
	out.WriteString("| `file(\"train.sh\")` | the text of a file beside the job file, as it stands: nothing in it is filled in |\n")

	out.WriteString("\n### Not supported yet\n\nRefused at their line:\n\n")
	for _, word := range append(later, muster.UnbuiltWords()...) {
		fmt.Fprintf(out, "* `%s`\n", word)
	}
}

func heading(b *schema.Block) string {
	if b.Label == "" {
		return b.Name
	}
	return fmt.Sprintf("%s %q", b.Name, strings.ToUpper(b.Label))
}

func attributeRows(b *schema.Body, later *[]string, title string) string {
	block, _, _ := strings.Cut(title, " ")
	var rows strings.Builder
	for i := range b.Attrs {
		a := &b.Attrs[i]
		for _, word := range a.Unbuilt {
			*later = append(*later, fmt.Sprintf("%s = %q", a.Name, word))
		}
		if a.Later {
			*later = append(*later, block+"."+a.Name)
			continue
		}
		usual := "—"
		switch {
		case a.Required:
			usual = "must be given"
		case strings.HasPrefix(a.Default, "that"):
			usual = a.Default
		case a.Default != "":
			usual = "`" + a.Default + "`"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", a.Name, cell(looks(a)), cell(usual), cell(a.Doc))
	}
	return rows.String()
}

func blockRows(b *schema.Body, later *[]string, title string) string {
	block, _, _ := strings.Cut(title, " ")
	var rows strings.Builder
	for i := range b.Blocks {
		inner := &b.Blocks[i]
		if inner.Later {
			*later = append(*later, block+"."+inner.Name+" { }")
			continue
		}
		doc := inner.Doc
		if inner.Many && inner.Name != "task" {
			doc += "; may stand several times"
		}
		fmt.Fprintf(&rows, "| `%s` | %s |\n", heading(inner), cell(doc))
	}
	return rows.String()
}

// looks says what an argument's value looks like.
func looks(a *schema.Attr) string {
	if len(a.Words) > 0 {
		list := "`" + `"` + strings.Join(a.Words, "\"` `\"") + `"` + "`"
		if a.Kind == schema.Strings {
			return "any of " + list
		}
		return list
	}
	return map[schema.Kind]string{
		schema.String: "text", schema.Scalar: "text or number", schema.Text: "text, with run-time values", schema.Bool: "`true` `false`",
		schema.Not: "`true` `false`", schema.Int: "whole number", schema.Number: "number", schema.Cores: "number, as `0.5`", schema.Share: "number, as `0.5`",
		schema.Duration: "duration, as `\"90s\"`", schema.Size: "size, as `\"64GiB\"`", schema.Strings: "list of texts",
		schema.Texts: "list of texts, with run-time values", schema.Ints: "list of whole numbers", schema.Map: "map",
		schema.TextMap: "map, with run-time values", schema.Any: "expression",
	}[a.Kind]
}

func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.TrimSuffix(strings.ToUpper(s[:1])+s[1:], ".") + "."
}

// cell is text in a table's cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

var attributeDocs = map[string]string{
	"address": "where its agent listens", "cores": "what it offers to jobs, as `16` or `0.5`",
	"fencing": "how surely a lost job's processes end: `strong`, or `weak` where the host can't give it", "gpu_model": "the first GPU's name, as the driver says it",
	"gpus": "how many it has, without those that left the machine", "memory": "what it offers to jobs; compared as a size", "name": "its name",
	"version": "of its muster",
}

var operatorDocs = map[muster.Operator]string{
	"=": "equal, as text or as amounts: `64GiB` is `65536MiB`", "!=": "not equal; holds where the node hasn't the attribute", ">": "more than; numbers and sizes",
	">=": "at least", "<": "less than", "<=": "at most", "in": "one of a list with commas, as `\"eu-1,eu-2\"`",
	"not_in": "none of the list; holds where the node hasn't the attribute", "matches": "a regular expression (RE2), anywhere in the value",
	"version": "a range of dotted numbers, as `\">= 1.2, < 2\"`", "exists": "the node has the attribute; without a value",
}

func writeAttributes(out *strings.Builder) {
	out.WriteString("\n| attribute | |\n|---|---|\n| `label.KEY` | a label of the node: its agent's file sets it, `muster node label` changes it |\n")
	for _, name := range muster.NodeAttributes {
		fmt.Fprintf(out, "| `node.%s` | %s |\n", name, attributeDocs[name])
	}
	out.WriteString("\n| operator | holds when the attribute is |\n|---|---|\n")
	for _, o := range muster.Operators {
		fmt.Fprintf(out, "| `%s` | %s |\n", o, operatorDocs[o])
	}
}

func TestEachAttributeAndOperatorIsExplained(t *testing.T) {
	for _, name := range muster.NodeAttributes {
		if attributeDocs[name] == "" {
			t.Errorf("docs/attributes.md does not explain node.%s", name)
		}
	}
	for _, o := range muster.Operators {
		if operatorDocs[o] == "" {
			t.Errorf("docs/attributes.md does not explain %s", o)
		}
	}
	if !slices.IsSorted(muster.NodeAttributes) {
		t.Error("the attributes are not in order")
	}
}
