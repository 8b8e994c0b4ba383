package schema

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// A dynamicBlock makes a block for each element of a list or map.
type dynamicBlock struct {
	forEach  hclsyntax.Expression
	iterator string
	labels   hclsyntax.Expression // nil: none
	content  *hclsyntax.Block
}

// dynamic decodes the blocks that a dynamic block makes, by decode. none is told the block's name, for one that makes none.
func (d *Decoder) dynamic(b *hclsyntax.Block, decode func(*hclsyntax.Block), none func(name string)) {
	made, ok := d.dynamicParts(b)
	if len(b.Labels) == 1 {
		none(b.Labels[0]) // it is not missing, whatever comes of it
	}
	if !ok {
		return
	}
	elements, ok := d.evaluate(&Attr{Name: "for_each", Kind: Any}, made.forEach)
	switch {
	case !ok:
		return
	case elements.IsNull() || !elements.CanIterateElements():
		d.error(firstLine(ptr(made.forEach.Range())), "Wrong value for for_each", "\"for_each\" is a list or a map; this is %s.", describe(elements))
		return
	}
	outer, first := d.Scope, len(d.Diags)
	defer func() {
		d.Scope = outer
		d.Diags = append(d.Diags[:first:first], onceEach(d.Diags[first:])...)
	}()
	for it := elements.ElementIterator(); it.Next(); {
		key, value := it.Element()
		if elements.Type().IsSetType() {
			key = value
		}
		if *outer.left -= 16 + (made.content.Range().End.Byte-made.content.Range().Start.Byte)/16; *outer.left < 0 {
			d.error(&b.TypeRange, "Too much to compute", "The block makes too many others.")
			return
		}
		d.Scope = outer.with(made.iterator, cty.ObjectVal(map[string]cty.Value{"key": key, "value": value}))
		block := *made.content
		block.Type, block.TypeRange = b.Labels[0], b.LabelRanges[0]
		if made.labels != nil {
			list, ok := d.list(&Attr{Name: "labels", Kind: Strings}, made.labels)
			if !ok {
				return
			}
			for _, label := range list.([]any) {
				block.Labels = append(block.Labels, label.(string))
				block.LabelRanges = append(block.LabelRanges, *firstLine(ptr(made.labels.Range())))
			}
		}
		decode(&block)
	}
}

// dynamicParts reads what stands in a dynamic block.
func (d *Decoder) dynamicParts(b *hclsyntax.Block) (dynamicBlock, bool) {
	const shape = "\n\n  dynamic \"constraint\" {\n    for_each = [\"a\", \"b\"]\n    content {\n      attribute = \"label.${constraint.value}\"\n" +
		"      operator  = \"exists\"\n    }\n  }"
	var made dynamicBlock
	fail := func(at hcl.Range, format string, args ...any) (dynamicBlock, bool) {
		d.error(firstLine(&at), "Wrong dynamic block", format, args...)
		return made, false
	}
	if len(b.Labels) != 1 {
		return fail(b.TypeRange, "A dynamic block says which block it makes:"+shape)
	}
	made.iterator = b.Labels[0]
	for _, a := range sortedAttributes(b.Body) {
		switch a.Name {
		case "for_each":
			made.forEach = a.Expr
		case "labels":
			made.labels = a.Expr
		case "iterator":
			if made.iterator = hcl.ExprAsKeyword(a.Expr); made.iterator == "" {
				return fail(a.Expr.Range(), "\"iterator\" is a name without quotes, as in iterator = item.")
			}
		default:
			return fail(a.NameRange, "%q is not expected here: a dynamic block holds for_each, content, iterator and labels.%s", a.Name, contentHint(a.Name))
		}
	}
	for _, inner := range b.Body.Blocks {
		switch {
		case inner.Type != "content":
			return fail(inner.TypeRange, "%q is not expected here: a dynamic block holds for_each, content, iterator and labels.%s", inner.Type, contentHint(inner.Type))
		case made.content != nil:
			return fail(inner.TypeRange, "There is one \"content\" block in a dynamic block.")
		}
		made.content = inner
	}
	if made.forEach == nil || made.content == nil {
		return fail(b.TypeRange, "A dynamic block has for_each, and a content block:"+shape)
	}
	return made, true
}

func contentHint(name string) string {
	if slices.Contains([]string{"for_each", "content", "iterator", "labels"}, Nearest(name, []string{"for_each", "content", "iterator", "labels"})) {
		return ""
	}
	return " What the blocks hold stands in content."
}

// onceEach drops what an error says again for the next element.
func onceEach(diags hcl.Diagnostics) hcl.Diagnostics {
	var out hcl.Diagnostics
	for _, x := range diags {
		if !slices.ContainsFunc(out, func(o *hcl.Diagnostic) bool {
			return o.Summary == x.Summary && o.Subject != nil && x.Subject != nil && *o.Subject == *x.Subject
		}) {
			out = append(out, x)
		}
	}
	return out
}

// sortedAttributes gives arguments in the order in which they stand.
func sortedAttributes(body *hclsyntax.Body) []*hclsyntax.Attribute {
	attrs := make([]*hclsyntax.Attribute, 0, len(body.Attributes))
	for _, a := range body.Attributes {
		attrs = append(attrs, a)
	}
	slices.SortFunc(attrs, func(a, b *hclsyntax.Attribute) int { return a.SrcRange.Start.Byte - b.SrcRange.Start.Byte })
	return attrs
}
