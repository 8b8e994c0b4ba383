package schema

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

func (d *Decoder) unknownAttr(table *Body, within string, a *hclsyntax.Attribute) {
	const summary = "Unsupported argument"
	if b := table.block(a.Name); b != nil {
		if b.Later {
			d.later(a.NameRange, "block", a.Name, within)
			return
		}
		d.error(&a.NameRange, summary, "%q is a block: write  %s%s {  without \"=\".", a.Name, a.Name, labelOf(b))
		return
	}
	say := d.suggest(table, within, a.Name, d.source(a.Expr))
	d.error(&a.NameRange, summary, "An argument named %q is not expected here. %s", a.Name, say)
}

func (d *Decoder) unknownBlock(table *Body, within string, b *hclsyntax.Block) {
	const summary = "Unsupported block type"
	if a := table.attr(b.Type); a != nil {
		switch {
		case a.Later:
			d.later(b.TypeRange, "argument", b.Type, within)
		case a.Kind == Map || a.Kind == TextMap:
			d.error(&b.TypeRange, summary, "%q is an argument: write  %s = {  with \"=\".", b.Type, b.Type)
		default:
			d.error(&b.TypeRange, summary, "%q is an argument: %s.", b.Type, strings.TrimPrefix(d.wants(a), fmt.Sprintf("%q is ", b.Type)))
		}
		return
	}
	say := d.suggest(table, within, b.Type, "")
	d.error(&b.TypeRange, summary, "A block of type %q is not expected here. %s", b.Type, say)
}

// suggest says what to write instead of an unknown word: our word for it, where it belongs, or what it looks like.
func (d *Decoder) suggest(table *Body, within, name, value string) string {
	for _, h := range d.Hints {
		if h.Word == name && (h.In == "" || h.In == within) {
			return h.text(value)
		}
	}
	if where := d.elsewhere(table, within, name); where != "" {
		return where
	}
	var names []string
	for i := range table.Attrs {
		names = append(names, table.Attrs[i].Name)
	}
	for i := range table.Blocks {
		names = append(names, table.Blocks[i].Name)
	}
	if near := Nearest(name, names); near != "" {
		return fmt.Sprintf("Did you mean %q?", near)
	}
	names = names[:0] // what is not built yet helps nobody
	for i := range table.Attrs {
		if !table.Attrs[i].Later {
			names = append(names, table.Attrs[i].Name)
		}
	}
	for i := range table.Blocks {
		if !table.Blocks[i].Later {
			names = append(names, table.Blocks[i].Name)
		}
	}
	switch {
	case table.Free != "":
		return "Here stand values with names of your own: write  " + name + " = {  with \"=\"."
	case len(names) == 0:
		return "Nothing stands here."
	}
	return "Here stand: " + strings.Join(names, ", ") + "."
}

func (h *Hint) text(value string) string {
	if h.HCL == "" {
		return h.Say
	}
	if h.Fits == "" || !regexp.MustCompile(`^(?:`+h.Fits+`)$`).MatchString(value) {
		value = h.Example
	}
	written := h.Written(value)
	if strings.Contains(written, "\n") {
		return h.Say + "\n\n  " + strings.ReplaceAll(written, "\n", "\n  ")
	}
	return h.Say + "  " + written + "."
}

// Written is the HCL of a hint for a value.
func (h *Hint) Written(value string) string {
	if !strings.Contains(h.HCL, "%s") {
		return h.HCL
	}
	return strings.Replace(h.HCL, "%s", value, 1)
}

// elsewhere finds the blocks that know a word which stands in the wrong one, the one below the body first.
func (d *Decoder) elsewhere(table *Body, within, name string) string {
	if where := find(table, nil, name); where != nil {
		return belongs(where)
	}
	if d.Root == nil {
		return ""
	}
	if where := find(d.Root, nil, name); where != nil {
		return belongs(where)
	}
	if d.Root.attr(name) != nil || d.Root.block(name) != nil {
		return "It belongs at the top of the file."
	}
	return ""
}

func belongs(where []string) string {
	for i, block := range where {
		where[i] = fmt.Sprintf("%q", block)
	}
	return "It belongs in the block " + strings.Join(where, " → ") + "."
}

// find gives the names of the blocks around the first argument or block of that name, breadth first.
func find(table *Body, above []string, name string) []string {
	type at struct {
		body  *Body
		above []string
	}
	next := []at{{table, above}}
	seen := map[*Body]bool{} // a block may hold blocks of its own kind
	for len(next) > 0 {
		here := next[0]
		next = next[1:]
		if seen[here.body] {
			continue
		}
		seen[here.body] = true
		if len(here.above) > 0 && (here.body.attr(name) != nil || here.body.block(name) != nil) {
			return here.above
		}
		for i := range here.body.Blocks {
			if b := &here.body.Blocks[i]; b.Body != nil {
				next = append(next, at{b.Body, append(append([]string(nil), here.above...), b.Name)})
			}
		}
	}
	return nil
}

func labelOf(b *Block) string {
	if b.Label == "" {
		return ""
	}
	return fmt.Sprintf(" %q", strings.ToUpper(b.Label))
}

// Nearest is the name that was probably meant; "" when none is near.
func Nearest(given string, names []string) string {
	best, distance := "", min(3, 1+len(given)/3)
	for _, name := range names {
		n := levenshtein.Distance(given, name, nil)
		if swapped(given, name) {
			n = 1 // one slip of the fingers
		}
		if n < distance {
			best, distance = name, n
		}
	}
	return best
}

// swapped says whether two neighbouring letters changed places.
func swapped(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) - 1 {
		if a[i] != b[i] {
			return a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
		}
	}
	return false
}
