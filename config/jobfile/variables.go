package jobfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/musterhpc/muster/config/schema"
)

// Var is a variable's value as a person gives it: the text of a string, else HCL.
type Var struct {
	Name, Value string
	From        string // as in "--var" or "MUSTER_VAR_epochs", for errors
}

// VarFile is a file of NAME = value lines.
type VarFile struct {
	Name   string
	Source []byte
}

// variable is a variable block.
type variable struct {
	Name    string
	Type    hclsyntax.Expression // nil: that of the default, else string
	Default hclsyntax.Expression // nil: it must be given
}

// names are what a file declares for its own expressions.
type names struct {
	Variables []variable
	Locals    []localsBlock
}

// localsBlock is a locals block.
type localsBlock struct{ Values []schema.Free }

var variableTable = schema.Body{Attrs: []schema.Attr{
	{Name: "type", Kind: schema.Any, Field: "Type", Default: "that of the default, else string",
		Doc: "string, number, bool, list(…), map(…) or object({…})"},
	{Name: "default", Kind: schema.Any, Field: "Default", Doc: "without it the value must be given: --var, --var-file or MUSTER_VAR_NAME"},
}}

var localsTable = schema.Body{Free: "Values"}

const maxNames = 1000 // of variables, and of local values

// scope gives what the file's expressions may name: variables with the values that were given, and locals.
func scope(d *schema.Decoder, declared *names, opts Options) *schema.Scope {
	s := schema.NewScope(nil, functions(opts.ReadFile))
	d.Scope = s
	if n := len(declared.Variables); n > maxNames {
		d.Error(fmt.Sprintf("variable[%d]", maxNames), "Too many variables", "A file has at most %d variables.", maxNames)
		declared = &names{}
	}
	values := variables(d, declared.Variables, opts)
	s.Set("var", values)
	locals(d, s, declared.Locals)
	return s
}

// variables gives each variable its value; cty.DynamicVal when it was refused.
func variables(d *schema.Decoder, declared []variable, opts Options) map[string]cty.Value {
	before := len(d.Diags)
	given := givenValues(d, declared, opts)
	misspelt := len(d.Diags) > before // then a value is missing for that reason
	values := map[string]cty.Value{}
	for i := range declared {
		v := &declared[i]
		path := fmt.Sprintf("variable[%d]", i)
		if !variableName(v.Name) {
			d.Error(path+".name", "Wrong name", "%q can't be the name of a variable: it has letters, digits and _, and begins with a letter.", v.Name)
			continue
		}
		if _, twice := values[v.Name]; twice {
			d.Error(path+".name", "Two variables of one name", "There is a variable %q already.", v.Name)
			continue
		}
		values[v.Name] = value(d, path, v, given, misspelt)
	}
	return values
}

func variableName(s string) bool {
	return hclsyntax.ValidIdentifier(s) && !strings.ContainsRune(s, '-')
}

func value(d *schema.Decoder, path string, v *variable, given map[string]givenValue, misspelt bool) cty.Value {
	want, fallback := cty.String, cty.NilVal
	ok := true
	if v.Type != nil {
		want, ok = typeOf(d, v.Type)
	}
	if v.Default != nil {
		var fine bool
		if uses := append(schema.Uses(v.Default, "var"), schema.Uses(v.Default, "local")...); len(uses) > 0 {
			d.Error(path+".default", "Wrong value for default", "A default names no other value: make it a local value, which may name variables.")
		} else if fallback, fine = d.Evaluate("default", v.Default); fine && v.Type == nil {
			want = fallback.Type()
		}
		if fine && ok && v.Type != nil {
			converted, err := convert.Convert(fallback, want)
			if fine = err == nil; !fine {
				d.Error(path+".default", "Wrong value for default", "The variable's type is %s: %s.", typeName(want), err)
			}
			fallback = converted
		}
		ok = ok && fine
	}
	g, said := given[v.Name]
	switch {
	case !ok:
	case said:
		if got, fine := g.as(d, v.Name, want); fine {
			return got
		}
	case v.Default != nil:
		return fallback
	case !misspelt:
		d.Error(path, "Variable without a value", "%q has no default: give it with --var %s=…, or with MUSTER_VAR_%s in the environment.", v.Name, v.Name, v.Name)
	}
	return cty.DynamicVal
}

// typeOf reads a type.
func typeOf(d *schema.Decoder, e hclsyntax.Expression) (cty.Type, bool) {
	at := e.Range()
	fail := func(format string, args ...any) (cty.Type, bool) {
		d.ErrorAt(at, "Unknown type", format, args...)
		return cty.NilType, false
	}
	const types = "string, number, bool, list(…), map(…) and object({…})"
	switch keyword := hcl.ExprAsKeyword(e); keyword {
	case "string":
		return cty.String, true
	case "number":
		return cty.Number, true
	case "bool":
		return cty.Bool, true
	case "list", "map":
		return fail("Say what it holds, as in %s(string).", keyword)
	case "object":
		return fail("Say what it holds, as in object({ lr = number }).")
	case "":
	default:
		return fail("There is no type %s. There are %s.", keyword, types)
	}
	if text, diags := e.Value(nil); !diags.HasErrors() && text.Type() == cty.String && !text.IsNull() {
		return fail("A type stands without quotes: type = %s.", text.AsString())
	}
	call, ok := e.(*hclsyntax.FunctionCallExpr)
	if !ok || len(call.Args) != 1 {
		return fail("The types are %s.", types)
	}
	switch call.Name {
	case "list", "map":
		inner, ok := typeOf(d, call.Args[0])
		if !ok {
			return cty.NilType, false
		}
		if call.Name == "list" {
			return cty.List(inner), true
		}
		return cty.Map(inner), true
	case "object":
		object, ok := call.Args[0].(*hclsyntax.ObjectConsExpr)
		if !ok {
			return fail("Say what it holds, as in object({ lr = number }).")
		}
		members := map[string]cty.Type{}
		for _, item := range object.Items {
			key := hcl.ExprAsKeyword(item.KeyExpr)
			if key == "" {
				at = item.KeyExpr.Range()
				return fail("A member's name stands without quotes, as in object({ lr = number }).")
			}
			inner, ok := typeOf(d, item.ValueExpr)
			if !ok {
				return cty.NilType, false
			}
			members[key] = inner
		}
		return cty.Object(members), true
	}
	return fail("There is no type %s. There are %s.", call.Name, types)
}

// typeName writes a type as typeOf reads it.
func typeName(t cty.Type) string {
	switch {
	case t.IsListType():
		return "list(" + typeName(t.ElementType()) + ")"
	case t.IsMapType():
		return "map(" + typeName(t.ElementType()) + ")"
	case t.IsTupleType():
		return "list"
	case t.IsObjectType():
		var members []string
		for name, inner := range t.AttributeTypes() {
			members = append(members, name+" = "+typeName(inner))
		}
		slices.Sort(members)
		return "object({ " + strings.Join(members, ", ") + " })"
	}
	return t.FriendlyName()
}

// givenValue is a value from outside: a text, or an expression of a variables file.
type givenValue struct {
	text string
	from string
	expr hclsyntax.Expression
	file *schema.Decoder // of expr
}

// givenValues collects what was given; the environment gives way to files, and files to the command line.
func givenValues(d *schema.Decoder, declared []variable, opts Options) map[string]givenValue {
	given := map[string]givenValue{}
	var all []string
	for i := range declared {
		v := declared[i].Name
		all = append(all, v)
		if opts.LookupEnv != nil {
			if text, ok := opts.LookupEnv("MUSTER_VAR_" + v); ok {
				given[v] = givenValue{text: text, from: "MUSTER_VAR_" + v}
			}
		}
	}
	for _, f := range opts.VarFiles {
		body, diags := schema.Parse(f.Name, f.Source)
		d.Diags = append(d.Diags, diags...)
		if body == nil {
			continue
		}
		inside := &schema.Decoder{Source: f.Source, Scope: schema.NewScope(nil, nil)}
		var values localsBlock
		inside.Decode(body, &localsTable, "", &values)
		for _, v := range values.Values {
			if !slices.Contains(all, v.Name) {
				inside.ErrorAt(v.At, "Unknown variable", "%s", undeclared(v.Name, all))
				continue
			}
			given[v.Name] = givenValue{from: f.Name, expr: v.Expr, file: inside}
		}
		d.Diags = append(d.Diags, inside.Diags...)
		inside.Diags = nil
	}
	for _, v := range opts.Vars {
		if !slices.Contains(all, v.Name) {
			d.Error("", "Unknown variable", "%s %s: %s", v.From, v.Name, undeclared(v.Name, all))
			continue
		}
		given[v.Name] = givenValue{text: v.Value, from: v.From + " " + v.Name}
	}
	return given
}

func undeclared(name string, all []string) string {
	say := fmt.Sprintf("The file declares no variable %q.", name)
	switch near := schema.Nearest(name, all); {
	case near != "":
		return say + fmt.Sprintf(" Did you mean %q?", near)
	case len(all) > 0:
		return say + " It has: " + strings.Join(all, ", ") + "."
	}
	return say + " It has none."
}

// as gives the value as a type. A text for a string is taken as it is; for any other type it is read as HCL.
func (g *givenValue) as(d *schema.Decoder, name string, want cty.Type) (cty.Value, bool) {
	v, ok := cty.StringVal(g.text), true
	switch {
	case g.expr != nil:
		v, ok = g.file.Evaluate(name, g.expr)
		d.Diags = append(d.Diags, g.file.Diags...)
		g.file.Diags = nil
	case !want.IsPrimitiveType():
		if v, ok = readLiteral(g.text); !ok {
			d.Error("", "Wrong value for "+name, "%s: it is %s, and %q can't be read as one. Write it as in a job file.", g.from, typeName(want), g.text)
		}
	}
	if !ok {
		return cty.DynamicVal, false
	}
	got, err := convert.Convert(v, want)
	switch {
	case err == nil && !got.IsNull():
		return got, true
	case g.expr != nil:
		d.ErrorAt(g.expr.Range(), "Wrong value for "+name, "The variable's type is %s.", typeName(want))
	case want.IsPrimitiveType():
		d.Error("", "Wrong value for "+name, "%s: %q is no %s.", g.from, g.text, typeName(want))
	default:
		d.Error("", "Wrong value for "+name, "%s: %q is no %s.", g.from, g.text, typeName(want))
	}
	return cty.DynamicVal, false
}

// readLiteral reads a value that was given as HCL: no names, no functions.
func readLiteral(text string) (cty.Value, bool) {
	body, diags := schema.Parse("value", []byte("value = "+text+"\n"))
	if body == nil || diags.HasErrors() || len(body.Attributes) != 1 || len(body.Blocks) != 0 {
		return cty.NilVal, false
	}
	d := &schema.Decoder{Scope: schema.NewScope(nil, nil)}
	v, ok := d.Evaluate("value", body.Attributes["value"].Expr)
	return v, ok && !v.IsNull()
}

// locals evaluates local values, each after those that it names.
func locals(d *schema.Decoder, s *schema.Scope, blocks []localsBlock) {
	all := map[string]schema.Free{}
	var order []string
	for _, block := range blocks {
		for _, l := range block.Values {
			if first, twice := all[l.Name]; twice {
				d.ErrorAt(l.At, "Two local values of one name", "There is a local value %q on line %d already.", l.Name, first.At.Start.Line)
				continue
			}
			if len(all) == maxNames {
				d.ErrorAt(l.At, "Too many local values", "A file has at most %d local values: a list or map of them is one.", maxNames)
				return
			}
			all[l.Name] = l
			order = append(order, l.Name)
		}
	}
	values := map[string]cty.Value{}
	for name := range all {
		values[name] = cty.DynamicVal // so that names are known while others are read
	}
	s.Set("local", values)
	done := map[string]bool{}
	var visit func(name string, above []string)
	visit = func(name string, above []string) {
		if i := slices.Index(above, name); i >= 0 {
			circle := append(slices.Clone(above[i:]), name)
			d.ErrorAt(all[name].At, "Values in a circle", "local.%s needs itself: local.%s.", name, strings.Join(circle, " → local."))
			for _, member := range circle {
				done[member] = true // said once
			}
			return
		}
		if l, known := all[name]; !done[name] && known {
			above = append(above, name)
			for _, other := range schema.Uses(l.Expr, "local") {
				visit(other, above)
			}
			if done[name] {
				return
			}
			done[name] = true
			if v, ok := d.Evaluate(name, l.Expr); ok {
				values[name] = v
				s.Set("local", values)
			}
		}
	}
	for _, name := range order {
		visit(name, nil)
	}
}
