package jobfile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/musterhpc/muster/config/schema"
)

// places gives, for each word of a job file, what stands before it and after it where it belongs, with a zero byte between.
func places() map[string]string {
	blocks := map[string]string{} // where the first word of a hint's HCL belongs
	var walk func(b *schema.Body, before, after string)
	walk = func(b *schema.Body, before, after string) {
		for i := range b.Attrs {
			if name := b.Attrs[i].Name; blocks[name] == "" {
				blocks[name] = before + "\x00" + after
			}
		}
		for i := range b.Blocks {
			block := &b.Blocks[i]
			if blocks[block.Name] == "" {
				blocks[block.Name] = before + "\x00" + after
			}
			if block.Body != nil && block.Name != "group" {
				label := map[bool]string{true: ` "x"`}[block.Label != ""]
				walk(block.Body, before+block.Name+label+" {\n", "\n}"+after)
			}
		}
	}
	walk(&fileTable, "", "")
	return blocks
}

var whereWordsBelong = places()

// readIn reads a piece of HCL where it belongs.
func readIn(around, piece string) hcl.Diagnostics {
	before, after, _ := strings.Cut(around, "\x00")
	src := []byte(before + piece + after)
	body, diags := schema.Parse("hint.hcl", src)
	if diags.HasErrors() {
		return diags
	}
	d := &schema.Decoder{Source: src, Root: &fileTable, Scope: schema.NewScope(nil, functions(nil))}
	d.Decode(body, &fileTable, "", &document{})
	return d.Diags
}

func TestHintsShowHCLThatOursIs(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range hints {
		if seen[h.In+" "+h.Word] {
			t.Errorf("%s: two hints", h.Word)
		}
		seen[h.In+" "+h.Word] = true
		if h.HCL == "" {
			continue
		}
		written := h.Written(h.Example)
		first := regexp.MustCompile(`^\w+`).FindString(written)
		around, known := whereWordsBelong[first]
		if !known {
			t.Errorf("%s: %q is no word of ours", h.Word, first)
			continue
		}
		if diags := readIn(around, written); diags.HasErrors() {
			t.Errorf("%s: %v in\n%s", h.Word, diags, written)
		}
		if ok, err := regexp.MatchString("^(?:"+h.Fits+")$", h.Example); h.Fits != "" && (err != nil || !ok) {
			t.Errorf("%s: its own example %s does not fit %s", h.Word, h.Example, h.Fits)
		}
	}
	for _, block := range []string{smallest, "job \"x\" {\n" + smallestTask + "\n}"} {
		if _, diags := Parse("smallest.hcl", []byte(block), Options{}); diags.HasErrors() {
			t.Errorf("%v in\n%s", diags, block)
		}
	}
}

// argument finds NAME = VALUE in prose; a value that stands for any other has letters of its own: N, VALUE, …
var argument = regexp.MustCompile("(?:^|[\\s`(:])([a-z_]{2,} = (?:\"[^\"%…$]*\"|\\[[^\\]%…]*\\]|[0-9.]+|true|false))(?:$|[\\s`).,:;])")

// oneLiners reads each NAME = VALUE of a text, and says how many it found.
func oneLiners(t *testing.T, where, text string) int {
	t.Helper()
	found := 0
	for _, m := range argument.FindAllStringSubmatch(text, -1) {
		word, _, _ := strings.Cut(m[1], " ")
		around, known := whereWordsBelong[word]
		if !known {
			continue // of another file, or no HCL
		}
		found++
		for _, diag := range readIn(around, m[1]) {
			if diag.Summary != "Not supported yet" { // which the text says itself
				t.Errorf("%s shows %s: %s", where, m[1], diag.Detail)
			}
		}
	}
	return found
}

// What the code and the pages tell people to write can be written.
func TestWhatPeopleAreToldToWriteIsRight(t *testing.T) {
	root, found := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, _ := filepath.Rel(root, path)
		switch name := entry.Name(); {
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "tools" || name == "queuefile" || name == "bin"):
			return filepath.SkipDir
		case inside == filepath.Join("docs", "queues.md"): // of another file, whose test reads it
		case inside == "README.md" || filepath.Dir(inside) == "docs" && strings.HasSuffix(name, ".md"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found += oneLiners(t, inside, string(text))
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".pb.go") && filepath.Dir(inside) != "config":
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return nil // the compiler says it
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil {
						found += oneLiners(t, inside, text)
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 30 {
		t.Errorf("found %d arguments in the code and the pages, want at least 30", found)
	}
}

// The HCL that errors show, indented below them, is HCL.
func TestBlocksInErrorsAreHCL(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "invalid", "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^  [a-z_]+( "[^"\n]*")? (\{|= <<).*\n(?:  .*\n)+`)
	found := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range shown.FindAll(text, -1) {
			found++
			if _, diags := schema.Parse(filepath.Base(path), piece); diags.HasErrors() {
				t.Errorf("%s shows what is no HCL: %v\n%s", path, diags, piece)
			}
		}
	}
	if found < 12 {
		t.Errorf("found %d blocks, want at least 12", found)
	}
}
