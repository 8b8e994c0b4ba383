package schema

import (
	"fmt"
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
	"var": "Variables", "local": "Locals", "array": "Arrays", "port": "Ports", "depends_on": "Dependencies", "time": "Schedules",
}

// isRoot says whether name begins one of our own names.
func isRoot(name string) bool {
	if unbuiltRoots[name] != "" {
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
		d.expression(entry, part)
		ok = false
	}
	return parts, ok
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

// expression explains why something that is no literal can't stand here: once, by the most telling name in it.
func (d *Decoder) expression(entry *Attr, e hclsyntax.Expression) {
	at := ptr(e.Range())
	if t, ok := e.(*hclsyntax.ScopeTraversalExpr); ok {
		d.reference(entry, t.Traversal, at, d.inTemplate(at))
		return
	}
	if call := d.firstCall(e); call != "" {
		d.error(at, "Not supported yet", "Functions, as in %s(…), are not supported yet.", call)
		return
	}
	variables := hclsyntax.Variables(e)
	for _, v := range variables { // a run-time value in an expression is wrong for ever: it is said first
		if name := dotted(v); slices.Contains(muster.RuntimeNames, name) {
			d.computed(name, e)
			return
		}
	}
	for _, v := range variables {
		d.reference(entry, v, at, d.inTemplate(at))
		return
	}
	if d.inTemplate(at) {
		if regexp.MustCompile(`^\d$`).MatchString(d.source(e)) {
			d.error(at, "Shell expansion in ${}", "${…} is filled in by muster, not by the shell. The shell's own is written  $%s  or  $${%s}", d.source(e), d.source(e))
			return
		}
		d.error(at, "Not supported yet", "Expressions in ${…} are not supported yet. For the text itself write  $${%s}", d.source(e))
		return
	}
	d.error(at, "Not supported yet", "Expressions are not supported yet: write the value of %q itself.", entry.Name)
}

// inTemplate says whether a range stands in ${…}.
func (d *Decoder) inTemplate(at *hcl.Range) bool {
	before := at.Start.Byte
	for before > 0 && before <= len(d.Source) && strings.IndexByte(" \t(~!-", d.Source[before-1]) >= 0 {
		before--
	}
	return before >= 2 && before <= len(d.Source) && string(d.Source[before-2:before]) == "${"
}

func (d *Decoder) firstCall(e hclsyntax.Expression) string {
	name := ""
	hclsyntax.VisitAll(e, func(n hclsyntax.Node) hcl.Diagnostics {
		if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && name == "" {
			name = call.Name
		}
		return nil
	})
	return name
}

// computed explains that nothing can be computed with a run-time value, with the same computation for the shell.
func (d *Decoder) computed(name string, e hclsyntax.Expression) {
	instead := fmt.Sprintf("use $%s in the script", inEnvironment[name])
	if slices.Contains(numeric, name) {
		sum := inEnvironment[name] + " + 1"
		if own := d.source(e); regexp.MustCompile(`^[a-z0-9_.+*/% ()-]+$`).MatchString(own) && len(hclsyntax.Variables(e)) == 1 {
			sum = strings.Replace(own, name, inEnvironment[name], 1)
		}
		instead = "compute in the script: $((" + sum + "))"
	}
	d.error(ptr(e.Range()), "Computing with a run-time value", "%s is known only when the task starts; write ${%s} alone, or %s", name, name, instead)
}

// reference explains a name that can't stand here.
func (d *Decoder) reference(entry *Attr, t hcl.Traversal, at *hcl.Range, inTemplate bool) {
	root, name := t.RootName(), dotted(t)
	written := d.written(at)
	switch {
	case slices.Contains(muster.RuntimeNames, name) && inTemplate:
		d.error(at, "Run-time value where none can be", "${%s} is known only when the task starts: it can stand in script, command, args, env and dir, not in %q.", name, entry.Name)
	case slices.Contains(muster.RuntimeNames, name):
		d.error(at, "Run-time value without quotes", "%s is known only when the task starts: it stands in a string, as in \"${%s}\".", name, name)
	case unbuiltRoots[root] != "":
		d.error(at, "Not supported yet", "%s, as in %s, are not supported yet.", unbuiltRoots[root], written)
	case !inTemplate && len(t) == 1:
		d.wrong(entry, &hclsyntax.ScopeTraversalExpr{SrcRange: *at, Traversal: t}, "A string stands in quotes: %s.", quoted(entry, root))
	case !inTemplate:
		d.wrong(entry, &hclsyntax.ScopeTraversalExpr{SrcRange: *at, Traversal: t}, "%s; nothing is called %s.", d.wants(entry), written)
	default:
		near := nearest(strings.ReplaceAll(name, "_", "."), muster.RuntimeNames)
		if near == "" && isRoot(root) {
			d.error(at, "Unknown run-time value", "There is no run-time value %s. There are: %s.", written, strings.Join(muster.RuntimeNames, ", "))
			return
		}
		if near != "" && strings.ToUpper(root) != root && len(name) > 2 {
			d.error(at, "Unknown run-time value", "There is no run-time value %s. Did you mean ${%s}? The shell's own is written  $%s", written, near, root)
			return
		}
		d.error(at, "Shell variable in ${}", "${…} is filled in by muster, not by the shell. The shell's own is written  $%s  or  $${%s}", root, written)
	}
}

func (d *Decoder) written(at *hcl.Range) string {
	return d.source(&hclsyntax.LiteralValueExpr{SrcRange: *at})
}
