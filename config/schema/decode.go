package schema

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/musterhpc/muster"
)

// Decoder reads bodies by their tables into Go structs. It goes on after an error, so that one run shows all mistakes.
type Decoder struct {
	Source []byte // of the file, for errors that quote it
	Root   *Body  // of the file, to say where a misplaced word belongs
	Hints  []Hint
	Scope  *Scope // of expressions; nil: the file holds literals only
	Diags  hcl.Diagnostics
	Places map[string]hcl.Range // by path, as in "jobs[0].task.resources.memory": where each thing was said

	at string // path of the argument whose value is read
}

// Decode reads body into the struct that into points to. path is the body's own, "" for a file.
func (d *Decoder) Decode(body *hclsyntax.Body, table *Body, path string, into any) {
	if d.Places == nil {
		d.Places = map[string]hcl.Range{}
	}
	d.body(body, table, path, "", reflect.ValueOf(into).Elem(), hcl.Range{})
	Sort(d.Diags)
}

// Sort orders diagnostics by file and place; what has none comes first.
func Sort(diags hcl.Diagnostics) {
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		if a.Subject != nil && b.Subject != nil && a.Subject.Filename != b.Subject.Filename {
			return strings.Compare(a.Subject.Filename, b.Subject.Filename)
		}
		return cmp.Compare(start(a), start(b))
	})
}

func (d *Decoder) body(body *hclsyntax.Body, table *Body, path, within string, into reflect.Value, header hcl.Range) {
	for _, a := range sortedAttributes(body) {
		entry := table.attr(a.Name)
		if entry == nil && table.Free != "" {
			d.Places[join(path, a.Name)] = a.NameRange
			list := field(into, table.Free)
			list.Set(reflect.Append(list, reflect.ValueOf(Free{a.Name, a.NameRange, a.Expr})))
			continue
		}
		if entry == nil {
			d.unknownAttr(table, within, a)
			continue
		}
		d.Places[join(path, a.Name)] = *firstLine(ptr(a.Expr.Range()))
		if entry.Later {
			d.later(a.NameRange, "argument", a.Name, within)
			continue
		}
		d.at = join(path, a.Name)
		d.attr(entry, a, into)
	}
	seen := map[string]*hclsyntax.Block{}
	counts := map[string]int{}
	one := func(b *hclsyntax.Block) {
		entry := table.block(b.Type)
		switch {
		case entry == nil:
			d.unknownBlock(table, within, b)
			return
		case entry.Later:
			d.later(b.TypeRange, "block", b.Type, within)
			seen[b.Type] = b
			return
		case seen[b.Type] != nil && !entry.Many:
			d.error(&b.TypeRange, "Block given twice", "There is one %q block %s; the first is on line %d.",
				b.Type, place(within), seen[b.Type].TypeRange.Start.Line)
			return
		}
		seen[b.Type] = b
		d.block(entry, b, join(path, entry.PathName(counts[b.Type])), into)
		counts[b.Type]++
	}
	for _, b := range body.Blocks {
		if b.Type == "dynamic" && d.Scope != nil {
			d.dynamic(b, one, func(name string) { seen[name] = b })
			continue
		}
		one(b)
	}
	for i := range table.Attrs {
		if a := &table.Attrs[i]; a.Required && body.Attributes[a.Name] == nil && !misspelt(body, table, a.Name) {
			d.error(&header, "Missing argument", "%q must be given %s.", a.Name, place(within))
		}
	}
	for i := range table.Blocks {
		if b := &table.Blocks[i]; b.Required && seen[b.Name] == nil {
			d.error(&header, "Missing block", "A %q block is needed %s.", b.Name, place(within))
		}
	}
}

// misspelt says whether an argument stands there under a name like its own: then it was said already.
func misspelt(body *hclsyntax.Body, table *Body, name string) bool {
	for given := range body.Attributes {
		if table.attr(given) == nil && Nearest(given, []string{name}) != "" {
			return true
		}
	}
	return false
}

// PathName is the block's name in field paths; i counts those of its kind.
func (b *Block) PathName(i int) string {
	if !b.Many {
		return b.Name
	}
	return fmt.Sprintf("%s[%d]", cmp.Or(b.Path, b.Name), i)
}

func (d *Decoder) block(entry *Block, b *hclsyntax.Block, path string, into reflect.Value) {
	d.Places[path] = b.TypeRange
	target := into
	if entry.Field != "" {
		target = field(into, entry.Field)
	}
	if entry.Many || target.Kind() == reflect.Pointer {
		first := reflect.New(target.Type().Elem()).Elem()
		if entry.New != nil {
			first.Set(reflect.ValueOf(entry.New()))
		}
		switch {
		case entry.Many:
			target.Set(reflect.Append(target, first))
			target = target.Index(target.Len() - 1)
		case target.IsNil(): // else another file of the same agent began it
			target.Set(first.Addr())
			target = target.Elem()
		default:
			target = target.Elem()
		}
	}
	switch {
	case entry.Label == "" && len(b.Labels) > 0:
		d.error(&b.LabelRanges[0], "Label where none belongs", "A %s block has no label: write  %s {", b.Type, b.Type)
	case entry.Label != "" && len(b.Labels) == 0:
		d.error(&b.TypeRange, "Missing "+entry.Label, "A %s block says its %s: write  %s \"%s\" {", b.Type, entry.Label, b.Type,
			strings.ToUpper(entry.Label))
	case len(b.Labels) > 1:
		d.error(&b.LabelRanges[1], "More than one label", "A %s block has one label, its %s.", b.Type, entry.Label)
	case entry.Label != "":
		d.Places[join(path, entry.Label)] = b.LabelRanges[0]
		field(target, entry.LabelAs).SetString(b.Labels[0])
	}
	if entry.Flat {
		path = path[:max(0, strings.LastIndexByte(path, '.'))]
	}
	d.body(b.Body, entry.Body, path, b.Type, target, b.DefRange())
}

func (d *Decoder) attr(entry *Attr, a *hclsyntax.Attribute, into reflect.Value) {
	value, ok := d.value(entry, a)
	if !ok {
		return
	}
	target := field(into, entry.Field)
	if labels, isMap := value.([]muster.Label); isMap && target.Kind() == reflect.Map {
		made := map[string]string{}
		for _, l := range labels {
			made[l.Key] = l.Value
		}
		target.Set(reflect.ValueOf(made))
		return
	}
	if list, isList := value.([]any); isList {
		made := reflect.MakeSlice(target.Type(), 0, len(list))
		for _, item := range list {
			made = reflect.Append(made, reflect.ValueOf(item).Convert(target.Type().Elem()))
		}
		target.Set(made)
		return
	}
	target.Set(reflect.ValueOf(value).Convert(target.Type()))
}

// field follows a path of field names. The tables are fixed, and a test walks them all: a wrong one does not get here.
func field(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		v = v.FieldByName(name)
	}
	return v
}

// Error adds an error at a place that was decoded; at the nearest block around it when the thing itself was not said.
func (d *Decoder) Error(path, summary, format string, args ...any) {
	at := d.Place(path)
	d.error(&at, summary, format, args...)
}

// ErrorAt adds an error at a range of the file, cut to its first line.
func (d *Decoder) ErrorAt(at hcl.Range, summary, format string, args ...any) {
	d.error(firstLine(&at), summary, format, args...)
}

// ErrorInText adds an error at the n-th line, from 0, of a text that was written as a heredoc; of another one at its start.
func (d *Decoder) ErrorInText(path string, n int, summary, format string, args ...any) {
	at := d.Place(path)
	if at.Filename == "" || at.Start.Byte > len(d.Source) || !bytes.HasPrefix(d.Source[at.Start.Byte:], []byte("<<")) {
		d.error(&at, summary, format, args...)
		return
	}
	offset := at.Start.Byte
	for range n + 1 {
		i := bytes.IndexByte(d.Source[offset:], '\n')
		if i < 0 {
			d.error(&at, summary, format, args...)
			return
		}
		offset += i + 1
	}
	line, _, _ := bytes.Cut(d.Source[offset:], []byte("\n"))
	indent := len(line) - len(bytes.TrimLeft(line, " \t"))
	from := hcl.Pos{Line: at.Start.Line + n + 1, Column: indent + 1, Byte: offset + indent}
	to := hcl.Pos{Line: from.Line, Column: from.Column + utf8.RuneCount(line[indent:]), Byte: offset + len(line)}
	d.error(&hcl.Range{Filename: at.Filename, Start: from, End: to}, summary, format, args...)
}

// Place says where the thing of a path was said, or the nearest around it.
func (d *Decoder) Place(path string) hcl.Range {
	for path != "" {
		if at, ok := d.Places[path]; ok {
			return at
		}
		path = path[:max(0, strings.LastIndexByte(path, '.'))]
	}
	return hcl.Range{}
}

func (d *Decoder) error(at *hcl.Range, summary, format string, args ...any) {
	if at != nil && at.Filename == "" {
		at = nil
	}
	d.Diags = append(d.Diags, problem(at, summary, format, args...))
}

func (d *Decoder) later(at hcl.Range, what, name, within string) {
	d.error(&at, "Not supported yet", "The %s %q %s is not supported yet.", what, name, place(within))
}

// place says where a body is, in words.
func place(within string) string {
	switch within {
	case "":
		return "at the top of the file"
	default:
		article := "a"
		if strings.ContainsRune("aeiou", rune(within[0])) {
			article = "an"
		}
		return fmt.Sprintf("in %s %s block", article, within)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func ptr(r hcl.Range) *hcl.Range { return &r }
