package schema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/musterhpc/muster"
)

// What may be computed with is also in the task's environment, under these names.
var inEnvironment = map[string]string{
	"job.id": "MUSTER_JOB_ID", "job.name": "MUSTER_JOB_NAME", "attempt": "MUSTER_ATTEMPT", "group": "MUSTER_GROUP",
	"rank": "MUSTER_RANK", "ranks": "MUSTER_RANKS", "node.name": "MUSTER_NODE", "node.ip": "MUSTER_NODE_IPS",
	"task.dir": "MUSTER_TASK_DIR", "checkpoint.dir": "MUSTER_CHECKPOINT_DIR",
}

var numeric = []string{"job.id", "attempt", "rank", "ranks"}

// Run-time values and names of the contract that are not built yet, by their first word.
var unbuiltRoots = map[string]string{
	"array": "Arrays", "port": "Ports", "depends_on": "Dependencies", "time": "Schedules",
}

// isRoot says whether name begins one of our own names.
func isRoot(name string) bool {
	if unbuiltRoots[name] != "" || name == "var" || name == "local" {
		return true
	}
	return slices.ContainsFunc(muster.RuntimeNames, func(n string) bool { return n == name || strings.HasPrefix(n, name+".") })
}

// text reads a string, number or bool as the text of a spec. With runtime it may hold run-time values.
func (d *Decoder) text(entry *Attr, e hclsyntax.Expression, runtime bool) (any, bool) {
	switch inner := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		return d.text(entry, inner.Expression, runtime)
	case *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr:
		parts, ok := d.parts(entry, e, runtime)
		if !ok {
			return nil, false
		}
		if runtime {
			return muster.JoinText(parts), true
		}
		var text strings.Builder
		for _, p := range parts {
			text.WriteString(p.Text)
		}
		return text.String(), true
	}
	one := &Attr{Name: entry.Name, Kind: Text}
	if entry.Kind != Text && entry.Kind != Scalar {
		one.Kind = item
	}
	v, ok := d.literal(one, e)
	if !ok {
		return nil, false
	}
	s, err := convert.Convert(v, cty.String)
	if err != nil {
		d.wrong(entry, e, "%s.", d.wants(one))
		return nil, false
	}
	if runtime {
		return muster.EscapeRuntime(s.AsString()), true
	}
	return s.AsString(), true
}

// parts reads a template: text, and run-time values that stand alone.
func (d *Decoder) parts(entry *Attr, e hclsyntax.Expression, runtime bool) ([]muster.TextPart, bool) {
	var list []hclsyntax.Expression
	switch e := e.(type) {
	case *hclsyntax.TemplateExpr:
		list = e.Parts
	case *hclsyntax.TemplateWrapExpr:
		list = []hclsyntax.Expression{e.Wrapped}
	}
	ok := true
	var parts []muster.TextPart
	for _, part := range list {
		if lit, isText := part.(*hclsyntax.LiteralValueExpr); isText && lit.Val.Type() == cty.String && !lit.Val.IsNull() {
			text := lit.Val.AsString()
			if strings.Contains(d.raw(part.Range()), "\r\n") { // lines as an editor of Windows ends them: no shell reads them so
				text = strings.ReplaceAll(text, "\r\n", "\n")
			}
			if n := len(parts); n > 0 && parts[n-1].Name == "" {
				parts[n-1].Text += text
			} else {
				parts = append(parts, muster.TextPart{Text: text})
			}
			continue
		}
		name := traversalName(part)
		if runtime && slices.Contains(muster.RuntimeNames, name) {
			parts = append(parts, muster.TextPart{Name: name})
			continue
		}
		text, good := d.computedText(entry, part)
		if n := len(parts); n > 0 && parts[n-1].Name == "" {
			parts[n-1].Text += text
		} else {
			parts = append(parts, muster.TextPart{Text: text})
		}
		ok = ok && good
	}
	return parts, ok
}

// computedText evaluates what stands in ${…}.
func (d *Decoder) computedText(entry *Attr, e hclsyntax.Expression) (string, bool) {
	v, ok := d.evaluate(entry, e)
	if !ok {
		return "", false
	}
	s, err := convert.Convert(v, cty.String)
	switch {
	case v.IsNull():
		d.error(ptr(e.Range()), "No value", "%s is null: it has no text.", d.source(e))
		return "", false
	case err != nil:
		d.error(ptr(e.Range()), "No text", "%s is %s, and only one text, number or bool can stand in ${}. A list becomes one text by  join(\" \", %s).",
			d.source(e), describe(v), d.source(e))
		return "", false
	}
	return s.AsString(), true
}

// traversalName gives "job.id" for the expression job.id; "" for anything else.
func traversalName(e hclsyntax.Expression) string {
	t, ok := e.(*hclsyntax.ScopeTraversalExpr)
	if !ok {
		return ""
	}
	return dotted(t.Traversal)
}

func dotted(t hcl.Traversal) string {
	var names []string
	for _, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			names = append(names, step.Name)
		case hcl.TraverseAttr:
			names = append(names, step.Name)
		default:
			return ""
		}
	}
	return strings.Join(names, ".")
}

// understood says whether all names in an expression are known; if not, it explains the most telling one, once.
func (d *Decoder) understood(entry *Attr, e hclsyntax.Expression) bool {
	at := ptr(e.Range())
	inTemplate := d.inTemplate(at)
	in := namesIn(e)
	if t, ok := e.(*hclsyntax.ScopeTraversalExpr); ok {
		return d.reference(entry, t.Traversal, at, inTemplate)
	}
	for _, v := range in.variables { // a run-time value in an expression is wrong for ever: it is said first
		if name := dotted(v); slices.Contains(muster.RuntimeNames, name) && !d.known(v) {
			d.computed(name, e)
			return false
		}
	}
	for _, call := range in.calls {
		if !d.callable(call) {
			return false
		}
	}
	for _, v := range in.variables {
		where := ptr(v.SourceRange())
		if d.Scope == nil {
			where = at
		}
		if !d.known(v) && !inTemplate && stringLike(entry.Kind) && len(in.calls) == 0 && !isRoot(v.RootName()) && d.unprefixed(v.RootName()) == "" {
			d.wrong(entry, e, "A string stands in quotes: %s.", quoted(entry, d.source(e)))
			return false
		}
		if !d.reference(entry, v, where, inTemplate) {
			return false
		}
	}
	switch {
	case inTemplate && regexp.MustCompile(`^\d$`).MatchString(d.source(e)):
		d.error(at, "Shell expansion in ${}", "${…} is filled in by muster, not by the shell. The shell's own is written  $%s  or  $${%s}", d.source(e), d.source(e))
	case d.Scope != nil:
		return true
	case inTemplate:
		d.error(at, "Expression where none can be", "Nothing is computed in this file. For the text itself write  $${%s}", d.source(e))
	default:
		d.error(at, "Expression where none can be", "Nothing is computed in this file: write the value of %q itself.", entry.Name)
	}
	return false
}

// known says whether the scope has the root of a name.
func (d *Decoder) known(t hcl.Traversal) bool {
	if d.Scope == nil {
		return false
	}
	_, ok := d.Scope.lookup(t.RootName())
	return ok
}

// impure are functions that people know from elsewhere, and what there is instead.
var impure = map[string]string{
	"timestamp":    "A file means the same whenever it is read. Give the time with --var, or take it in the script.",
	"uuid":         "A file means the same whenever it is read; ${job.id} is new for each job.",
	"env":          "A file doesn't read the environment. Set MUSTER_VAR_NAME there, and declare the variable NAME here.",
	"getenv":       "A file doesn't read the environment. Set MUSTER_VAR_NAME there, and declare the variable NAME here.",
	"templatefile": "file(…) reads a text as it is; run-time values are in the task's environment, as $MUSTER_RANK is.",
	"filebase64":   "A file that the task needs goes along with upload.",
}

// callable says whether a function is there; if not, it says which is.
func (d *Decoder) callable(call *hclsyntax.FunctionCallExpr) bool {
	at := ptr(call.NameRange)
	if d.Scope == nil {
		d.error(at, "Function where none can be", "Nothing is computed in this file: write the value itself, not %s(…).", call.Name)
		return false
	}
	functions := d.Scope.functions()
	if _, ok := functions[call.Name]; ok {
		return true
	}
	all := slices.Sorted(maps.Keys(functions))
	switch near := Nearest(call.Name, all); {
	case impure[call.Name] != "":
		d.error(at, "Unknown function", "There is no function %s. %s", call.Name, impure[call.Name])
	case near != "":
		d.error(at, "Unknown function", "There is no function %s. Did you mean %s(…)?", call.Name, near)
	default:
		d.error(at, "Unknown function", "There is no function %s. There are: %s.", call.Name, strings.Join(all, ", "))
	}
	return false
}

// inTemplate says whether a range stands in ${…}.
func (d *Decoder) inTemplate(at *hcl.Range) bool {
	before := at.Start.Byte
	for before > 0 && before <= len(d.Source) && strings.IndexByte(" \t(~!-", d.Source[before-1]) >= 0 {
		before--
	}
	return before >= 2 && before <= len(d.Source) && string(d.Source[before-2:before]) == "${"
}

// computed explains that nothing can be computed with a run-time value, with the same computation for the shell.
func (d *Decoder) computed(name string, e hclsyntax.Expression) {
	instead := fmt.Sprintf("use $%s in the script", inEnvironment[name])
	if slices.Contains(numeric, name) && len(namesIn(e).calls) == 0 {
		sum := inEnvironment[name] + " + 1"
		if own := d.source(e); regexp.MustCompile(`^[a-z0-9_.+*/% ()-]+$`).MatchString(own) && len(namesIn(e).variables) == 1 {
			sum = strings.Replace(own, name, inEnvironment[name], 1)
		}
		instead = "compute in the script: $((" + sum + "))"
	}
	d.error(ptr(e.Range()), "Computing with a run-time value", "%s is known only when the task starts; write ${%s} alone, or %s", name, name, instead)
}

// reference says whether a name has a value here; if not, it explains why.
func (d *Decoder) reference(entry *Attr, t hcl.Traversal, at *hcl.Range, inTemplate bool) bool {
	root, name := t.RootName(), dotted(t)
	if d.known(t) {
		return d.member(t, at)
	}
	written := d.written(at)
	switch {
	case slices.Contains(muster.RuntimeNames, name) && inTemplate:
		d.error(at, "Run-time value where none can be", "${%s} is known only when the task starts: it can stand in script, command, args, env, dir and logs.path, not in %q.", name, entry.Name)
	case slices.Contains(muster.RuntimeNames, name):
		d.error(at, "Run-time value without quotes", "%s is known only when the task starts: it stands in a string, as in \"${%s}\".", name, name)
	case unbuiltRoots[root] != "":
		d.error(at, "Not supported yet", "%s, as in %s, are not supported yet.", unbuiltRoots[root], written)
	case (root == "var" || root == "local") && d.Scope == nil:
		d.error(at, "Variable where none can be", "There are no variables in this file: write the value of %q itself.", entry.Name)
	case d.unprefixed(root) != "":
		d.error(at, "Unknown name", "There is no %s here. Did you mean %s?", root, d.unprefixed(root))
	case (entry.Kind == Bool || entry.Kind == Not) && !inTemplate && (strings.EqualFold(root, "true") || strings.EqualFold(root, "false")):
		d.wrong(entry, &hclsyntax.ScopeTraversalExpr{SrcRange: *at, Traversal: t}, "It has small letters: %s = %s.", entry.Name, strings.ToLower(root))
	case !inTemplate && stringLike(entry.Kind):
		d.wrong(entry, &hclsyntax.ScopeTraversalExpr{SrcRange: *at, Traversal: t}, "A string stands in quotes: %s.", quoted(entry, written))
	case !inTemplate && entry.Kind == Any:
		d.error(at, "Unknown name", "Nothing is called %s.", written)
	case !inTemplate:
		d.wrong(entry, &hclsyntax.ScopeTraversalExpr{SrcRange: *at, Traversal: t}, "%s; nothing is called %s.", d.wants(entry), written)
	default:
		d.unknownInTemplate(t, at)
	}
	return false
}

// stringLike says whether a value of that kind, or in it, stands in quotes.
func stringLike(k Kind) bool {
	return slices.Contains([]Kind{String, Scalar, Text, Duration, Size, Strings, Texts, Map, TextMap, item}, k)
}

func (d *Decoder) unknownInTemplate(t hcl.Traversal, at *hcl.Range) {
	root, name, written := t.RootName(), dotted(t), d.written(at)
	near := Nearest(strings.ReplaceAll(name, "_", "."), muster.RuntimeNames)
	switch {
	case near == "" && isRoot(root):
		d.error(at, "Unknown run-time value", "There is no run-time value %s. There are: %s.", written, strings.Join(muster.RuntimeNames, ", "))
	case near != "" && strings.ToUpper(root) != root && len(name) > 2:
		d.error(at, "Unknown run-time value", "There is no run-time value %s. Did you mean ${%s}? The shell's own is written  $%s", written, near, root)
	default:
		d.error(at, "Shell variable in ${}", "${…} is filled in by muster, not by the shell. The shell's own is written  $%s  or  $${%s}", root, written)
	}
}

// unprefixed finds the variable or local that was meant by its bare name; "" when there is none.
func (d *Decoder) unprefixed(root string) string {
	if d.Scope == nil {
		return ""
	}
	for _, object := range []string{"var", "local"} {
		if slices.Contains(d.Scope.members(object), root) {
			return object + "." + root
		}
	}
	return ""
}

// member says whether var and local have what is named below them; if not, it says what they have.
func (d *Decoder) member(t hcl.Traversal, at *hcl.Range) bool {
	root := t.RootName()
	if root != "var" && root != "local" {
		return true
	}
	if len(t) < 2 {
		d.error(at, "Unknown name", "%s alone has no value: name one of it, as in %s.NAME.", root, root)
		return false
	}
	step, ok := t[1].(hcl.TraverseAttr)
	if v, _ := d.Scope.lookup(root); !ok || v.Type().HasAttribute(step.Name) {
		return true
	}
	have := d.Scope.members(root)
	what, declare := "variable", fmt.Sprintf("variable %q {\n    type = string\n  }", step.Name)
	if root == "local" {
		what, declare = "local value", fmt.Sprintf("locals {\n    %s = \"…\"\n  }", step.Name)
	}
	if near := Nearest(step.Name, have); near != "" {
		d.error(at, "Unknown "+what, "There is no %s %q. Did you mean %s.%s?", what, step.Name, root, near)
	} else {
		d.error(at, "Unknown "+what, "There is no %s %q. It is declared at the top of the file:\n\n  %s", what, step.Name, declare)
	}
	return false
}

func (d *Decoder) written(at *hcl.Range) string {
	return d.source(&hclsyntax.LiteralValueExpr{SrcRange: *at})
}
