package schema

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// Scope is what the expressions of a file may name, and what evaluating them may still cost.
type Scope struct {
	context *hcl.EvalContext
	left    *int // work; see cost
}

// The work that the expressions of one file may make: a fraction of a second, and 4 MiB of text.
const maxWork = 1 << 18

// NewScope makes a scope of objects ("var", with its members) and functions.
func NewScope(objects map[string]map[string]cty.Value, functions map[string]function.Function) *Scope {
	left := maxWork
	s := &Scope{&hcl.EvalContext{Variables: map[string]cty.Value{}, Functions: functions}, &left}
	for name, members := range objects {
		s.Set(name, members)
	}
	return s
}

// Set replaces an object. A member that is cty.DynamicVal was refused already: nothing more is said of what uses it.
func (s *Scope) Set(name string, members map[string]cty.Value) {
	s.context.Variables[name] = cty.ObjectVal(members)
}

// with gives a scope inside that has one more name.
func (s *Scope) with(name string, value cty.Value) *Scope {
	inner := s.context.NewChild()
	inner.Variables = map[string]cty.Value{name: value}
	return &Scope{inner, s.left}
}

// lookup finds the value of a name.
func (s *Scope) lookup(root string) (cty.Value, bool) {
	for c := s.context; c != nil; c = c.Parent() {
		if v, ok := c.Variables[root]; ok {
			return v, true
		}
	}
	return cty.NilVal, false
}

func (s *Scope) functions() map[string]function.Function {
	c := s.context
	for c.Parent() != nil {
		c = c.Parent()
	}
	return c.Functions
}

// Evaluate gives the value of an expression. ok is false when it was refused, or uses what was refused already.
func (d *Decoder) Evaluate(name string, e hclsyntax.Expression) (cty.Value, bool) {
	return d.evaluate(&Attr{Name: name, Kind: Any}, e)
}

func (d *Decoder) evaluate(entry *Attr, e hclsyntax.Expression) (v cty.Value, ok bool) {
	if !d.understood(entry, e) || *d.Scope.left < 0 { // that the work is too much was said
		return cty.NilVal, false
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case tooMuch:
			d.error(firstLine(ptr(e.Range())), "Too much to compute", "%s", r.Error())
			v, ok = cty.NilVal, false
		default:
			panic(r)
		}
	}()
	v, diags := d.Scope.metered(e).Value(d.Scope.context)
	if diags.HasErrors() {
		d.Diags = append(d.Diags, d.reworded(diags, e))
		return cty.NilVal, false
	}
	return v, v.IsWhollyKnown()
}

// reworded is the first error of an evaluation, which may repeat for each round of a for.
func (d *Decoder) reworded(diags hcl.Diagnostics, e hclsyntax.Expression) *hcl.Diagnostic {
	i := slices.IndexFunc(diags, func(x *hcl.Diagnostic) bool { return x.Severity == hcl.DiagError })
	first := diags[i]
	at := first.Subject
	if at == nil {
		at = ptr(e.Range())
	}
	detail := strings.ReplaceAll(first.Detail, "Call to function", "The call of function")
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: first.Summary, Detail: detail, Subject: firstLine(at)}
}

// reduce evaluates what is no literal, template, list or map, and gives the value as one of these.
func (d *Decoder) reduce(entry *Attr, e hclsyntax.Expression) (hclsyntax.Expression, bool) {
	switch x := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		return d.reduce(entry, x.Expression)
	case *hclsyntax.LiteralValueExpr, *hclsyntax.TemplateExpr, *hclsyntax.TupleConsExpr, *hclsyntax.ObjectConsExpr:
		return e, true
	case *hclsyntax.TemplateWrapExpr:
		if d.Scope == nil || !slices.Contains([]Kind{Bool, Int, Number, Cores, Strings, Texts, Ints, Map, TextMap}, entry.Kind) {
			return e, true // a text
		}
		return d.reduce(entry, x.Wrapped)
	case *hclsyntax.UnaryOpExpr:
		if inner, ok := x.Val.(*hclsyntax.LiteralValueExpr); ok && x.Op == hclsyntax.OpNegate && inner.Val.Type() == cty.Number {
			return &hclsyntax.LiteralValueExpr{Val: inner.Val.Negate(), SrcRange: x.SrcRange}, true
		}
	}
	v, ok := d.evaluate(entry, e)
	if !ok {
		return nil, false
	}
	return expression(v, e.Range()), true
}

// expression writes a value as the expression that it could have been.
func expression(v cty.Value, at hcl.Range) hclsyntax.Expression {
	switch t := v.Type(); {
	case v.IsNull(), t.IsPrimitiveType():
	case t.IsListType(), t.IsSetType(), t.IsTupleType():
		list := &hclsyntax.TupleConsExpr{SrcRange: at, OpenRange: at}
		for it := v.ElementIterator(); it.Next(); {
			_, element := it.Element()
			list.Exprs = append(list.Exprs, expression(element, at))
		}
		return list
	case t.IsMapType(), t.IsObjectType():
		object := &hclsyntax.ObjectConsExpr{SrcRange: at, OpenRange: at}
		for it := v.ElementIterator(); it.Next(); {
			key, element := it.Element()
			object.Items = append(object.Items, hclsyntax.ObjectConsItem{KeyExpr: expression(key, at), ValueExpr: expression(element, at)})
		}
		return object
	}
	return &hclsyntax.LiteralValueExpr{Val: v, SrcRange: at}
}

// A metered expression counts what it cost. HCL's own evaluation has no bound: a for in a for, or a text that doubles itself
// through some locals, would take all time and memory.
type metered struct {
	hclsyntax.Expression
	left *int
}

// tooMuch is panicked with, since an error would not end a for; evaluate catches it.
type tooMuch string

func (t tooMuch) Error() string { return string(t) }

func (m *metered) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := m.Expression.Value(ctx)
	m.spend(1 + cost(v, *m.left))
	return v, diags
}

func (m *metered) spend(n int) {
	if *m.left -= n; *m.left < 0 {
		panic(tooMuch("Evaluating the file takes too long, or too much memory. Compute such things in the script."))
	}
}

// cost is the size of a value, as far as limit: one for each value in it, and one for each 16 bytes of text.
func cost(v cty.Value, limit int) int {
	if v == cty.NilVal || v.IsNull() || !v.IsKnown() {
		return 1
	}
	switch t := v.Type(); {
	case t == cty.String:
		return 1 + len(v.AsString())/16
	case t == cty.Number:
		if tooLarge(v.AsBigFloat()) {
			panic(tooMuch("A number is too large."))
		}
		return 1
	case v.CanIterateElements():
		n := 1
		if t.IsTupleType() { // HCL compares the types of its elements with each other
			n += t.Length() * t.Length() / 256
		}
		for it := v.ElementIterator(); it.Next() && n <= limit; {
			_, element := it.Element()
			n += cost(element, limit-n)
		}
		return n
	}
	return 1
}

// metered makes each part of an expression count, once.
func (s *Scope) metered(e hclsyntax.Expression) hclsyntax.Expression {
	if e == nil {
		return nil
	}
	in := func(p *hclsyntax.Expression) {
		if *p != nil {
			*p = s.metered(*p)
		}
	}
	switch x := e.(type) {
	case *metered, *hclsyntax.AnonSymbolExpr:
		return e
	case *hclsyntax.LiteralValueExpr:
		if x.Val.Type() == cty.String { // HCL looks at these itself
			return e
		}
	case *hclsyntax.TemplateExpr:
		for i := range x.Parts {
			in(&x.Parts[i])
		}
	case *hclsyntax.TemplateWrapExpr:
		in(&x.Wrapped)
	case *hclsyntax.TemplateJoinExpr:
		in(&x.Tuple)
	case *hclsyntax.ParenthesesExpr:
		in(&x.Expression)
	case *hclsyntax.FunctionCallExpr:
		for i := range x.Args {
			in(&x.Args[i])
		}
	case *hclsyntax.ConditionalExpr:
		in(&x.Condition)
		in(&x.TrueResult)
		in(&x.FalseResult)
	case *hclsyntax.IndexExpr:
		in(&x.Collection)
		in(&x.Key)
	case *hclsyntax.RelativeTraversalExpr:
		in(&x.Source)
	case *hclsyntax.TupleConsExpr:
		for i := range x.Exprs {
			in(&x.Exprs[i])
		}
	case *hclsyntax.ObjectConsExpr:
		for i := range x.Items {
			if key, ok := x.Items[i].KeyExpr.(*hclsyntax.ObjectConsKeyExpr); ok {
				s.metered(key.Wrapped) // its parts; a bare word stays one
			}
			in(&x.Items[i].ValueExpr)
		}
	case *hclsyntax.ForExpr:
		in(&x.CollExpr)
		in(&x.KeyExpr)
		in(&x.ValExpr)
		in(&x.CondExpr)
	case *hclsyntax.SplatExpr:
		in(&x.Source)
		in(&x.Each)
	case *hclsyntax.BinaryOpExpr:
		in(&x.LHS)
		in(&x.RHS)
	case *hclsyntax.UnaryOpExpr:
		in(&x.Val)
	}
	return &metered{e, s.left}
}

func unmetered(n hclsyntax.Node) hclsyntax.Node {
	if m, ok := n.(*metered); ok {
		return m.Expression
	}
	return n
}

// names collects what an expression names and calls. What a for binds inside is none of them.
type names struct {
	variables []hcl.Traversal
	calls     []*hclsyntax.FunctionCallExpr
	bound     []map[string]struct{}
}

func namesIn(e hclsyntax.Expression) *names {
	n := &names{}
	_ = hclsyntax.Walk(e, n) // it says nothing
	return n
}

// Enter implements hclsyntax.Walker.
func (n *names) Enter(node hclsyntax.Node) hcl.Diagnostics {
	switch x := unmetered(node).(type) {
	case *hclsyntax.ScopeTraversalExpr:
		root := x.Traversal.RootName()
		if !slices.ContainsFunc(n.bound, func(m map[string]struct{}) bool { _, ok := m[root]; return ok }) {
			n.variables = append(n.variables, x.Traversal)
		}
	case *hclsyntax.FunctionCallExpr:
		n.calls = append(n.calls, x)
	case hclsyntax.ChildScope:
		n.bound = append(n.bound, x.LocalNames)
	}
	return nil
}

// Exit implements hclsyntax.Walker.
func (n *names) Exit(node hclsyntax.Node) hcl.Diagnostics {
	if _, ok := node.(hclsyntax.ChildScope); ok {
		n.bound = n.bound[:len(n.bound)-1]
	}
	return nil
}

// Uses gives the names below object that an expression uses: of local.a and local.b "a" and "b", in their order.
func Uses(e hclsyntax.Expression, object string) []string {
	var out []string
	for _, t := range namesIn(e).variables {
		if len(t) < 2 || t.RootName() != object {
			continue
		}
		if step, ok := t[1].(hcl.TraverseAttr); ok && !slices.Contains(out, step.Name) {
			out = append(out, step.Name)
		}
	}
	return out
}

// members are the names below an object of the scope; nil when it is none.
func (s *Scope) members(root string) []string {
	v, ok := s.lookup(root)
	if !ok || !v.Type().IsObjectType() {
		return nil
	}
	return slices.Sorted(maps.Keys(v.Type().AttributeTypes()))
}

// describe says what a value is, in an error.
func describe(v cty.Value) string {
	switch t := v.Type(); {
	case v.IsNull():
		return "null"
	case t == cty.String:
		return fmt.Sprintf("the text %q", v.AsString())
	case t == cty.Number:
		return "the number " + v.AsBigFloat().Text('g', 10)
	case t == cty.Bool:
		return fmt.Sprint(v.True())
	case t.IsMapType(), t.IsObjectType():
		return "a map"
	default:
		return "a list"
	}
}

// tooLarge says whether a number has thousands of digits.
func tooLarge(f *big.Float) bool {
	e := f.MantExp(nil)
	return f.IsInf() || e > 1<<12 || e < -1<<12
}
