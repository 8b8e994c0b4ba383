package schema

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/musterhpc/muster"
)

// value reads an argument's value by its kind; ok is false when it was refused.
func (d *Decoder) value(entry *Attr, a *hclsyntax.Attribute) (value any, ok bool) {
	switch entry.Kind {
	case Any:
		return a.Expr, true
	case Bool:
		return d.bool(entry, a.Expr)
	case Not:
		v, ok := d.bool(entry, a.Expr)
		return v != true, ok
	case Int:
		n, ok := d.int(entry, a.Expr)
		return n, ok && d.notZero(entry, a.Expr, n == 0)
	case Number, Cores, Share, Money, Milli:
		return d.fraction(entry, a.Expr)
	case Quotas:
		return d.quotas(entry, a.Expr)
	case Duration:
		return d.unit(entry, a.Expr)
	case Size:
		return d.unit(entry, a.Expr)
	case Strings, Texts, Ints:
		return d.list(entry, a.Expr)
	case Map, TextMap:
		return d.pairs(entry, a.Expr)
	case String:
		s, ok := d.string(entry, a.Expr)
		if !ok {
			return nil, false
		}
		return d.word(entry, a.Expr, s)
	case Text:
		return d.text(entry, a.Expr, true)
	default: // Scalar
		return d.text(entry, a.Expr, false)
	}
}

func (d *Decoder) wrong(entry *Attr, e hclsyntax.Expression, format string, args ...any) {
	d.error(ptr(e.Range()), "Wrong value for "+entry.Name, format, args...)
}

func (d *Decoder) notZero(entry *Attr, e hclsyntax.Expression, zero bool) bool {
	if zero && entry.Positive {
		d.wrong(entry, e, "%q must be more than zero. Leave it out for its default.", entry.Name)
		return false
	}
	return true
}

// literal gives the value of a number, bool or text, evaluated where it is computed; anything else is explained.
func (d *Decoder) literal(entry *Attr, e hclsyntax.Expression) (cty.Value, bool) {
	e, ok := d.reduce(entry, e)
	if !ok {
		return cty.NilVal, false
	}
	switch e := e.(type) {
	case *hclsyntax.LiteralValueExpr:
		switch {
		case e.Val.IsNull() && d.asWritten(e):
			d.wrong(entry, e, "null is no value here. Leave %q out for its default.", entry.Name)
			return cty.NilVal, false
		case e.Val.IsNull():
			d.wrong(entry, e, "%s is null, and %q needs a value.", d.source(e), entry.Name)
			return cty.NilVal, false
		case e.Val.Type() == cty.Number && tooLarge(e.Val.AsBigFloat()):
			d.wrong(entry, e, "The number is too large.")
			return cty.NilVal, false
		}
		return e.Val, true
	case *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr:
		parts, ok := d.parts(entry, e, false)
		if !ok {
			return cty.NilVal, false
		}
		var text strings.Builder
		for _, p := range parts {
			text.WriteString(p.Text)
		}
		return cty.StringVal(text.String()), true
	case *hclsyntax.TupleConsExpr:
		d.wrong(entry, e, "%s, not a list.", d.wants(entry))
	case *hclsyntax.ObjectConsExpr:
		d.wrong(entry, e, "%s, not a map.", d.wants(entry))
	}
	return cty.NilVal, false
}

var plain = regexp.MustCompile(`^(?:-?\s*[0-9][0-9.eE+-]*|true|false|null)$`)

// asWritten says whether a literal stands in the file as it is, and was not computed.
func (d *Decoder) asWritten(e hclsyntax.Expression) bool {
	text := d.source(e)
	return plain.MatchString(text) || strings.HasPrefix(text, `"`) && !strings.Contains(text, "${")
}

// got says what a computed value is, behind what was wanted; "" for one that anybody can see.
func (d *Decoder) got(e hclsyntax.Expression, v cty.Value) string {
	if d.asWritten(e) || d.source(e) == "…" {
		return ""
	}
	return fmt.Sprintf("; %s is %s", d.source(e), describe(v))
}

// wants says what a kind looks like.
func (d *Decoder) wants(entry *Attr) string {
	what := map[Kind]string{
		String: "a string, as in \"…\"", Scalar: "a string, as in \"…\"", Text: "a string, as in \"…\"", Bool: "true or false",
		Not: "true or false", Int: "a whole number, as in 4", Number: "a number, as in 2.5", Money: "a number, as in 2.10",
		Milli: "a number, as in 2 or 0.5", Quotas: "a whole number, as in 64, or a map by GPU model, as in { H100 = 64 }",
		Cores: "a number, as in 4 or 0.5", Share: "a part of one GPU, as in 0.5",
		Duration: "a string with a unit, as in \"90s\", \"4h\" or \"3d\"", Size: "a string with a unit, as in \"64GiB\"",
		Strings: "a list of strings, as in [\"a\", \"b\"]", Texts: "a list of strings, as in [\"a\", \"b\"]",
		Ints: "a list of whole numbers, as in [0, 3]", Map: "a map, as in { key = \"value\" }", TextMap: "a map, as in { NAME = \"value\" }",
	}[entry.Kind]
	if entry.Kind == item {
		return fmt.Sprintf("A value in %q is a string, as in \"…\"", entry.Name)
	}
	return fmt.Sprintf("%q is %s", entry.Name, what)
}

func (d *Decoder) bool(entry *Attr, e hclsyntax.Expression) (any, bool) {
	v, ok := d.literal(entry, e)
	if !ok {
		return nil, false
	}
	if v.Type() != cty.Bool {
		d.wrong(entry, e, "%s, without quotes%s.", d.wants(entry), d.got(e, v))
		return nil, false
	}
	return v.True(), true
}

func (d *Decoder) number(entry *Attr, e hclsyntax.Expression) (*big.Float, bool) {
	v, ok := d.literal(entry, e)
	if !ok {
		return nil, false
	}
	if v.Type() == cty.Number {
		return v.AsBigFloat(), true
	}
	if v.Type() == cty.String && d.asWritten(e) && regexp.MustCompile(`^\d+(\.\d+)?$`).MatchString(v.AsString()) {
		d.wrong(entry, e, "%q is a number: write it without quotes, %s = %s.", entry.Name, entry.Name, v.AsString())
		return nil, false
	}
	d.wrong(entry, e, "%s%s.", d.wants(entry), d.got(e, v))
	return nil, false
}

func (d *Decoder) int(entry *Attr, e hclsyntax.Expression) (int, bool) {
	f, ok := d.number(entry, e)
	if !ok {
		return 0, false
	}
	if n, exact := f.Int64(); exact == big.Exact && n > -1<<31 && n < 1<<31 {
		return int(n), true
	}
	d.wrong(entry, e, "%s%s.", d.wants(entry), d.got(e, cty.NumberVal(f)))
	return 0, false
}

// fraction reads what may have decimals.
func (d *Decoder) fraction(entry *Attr, e hclsyntax.Expression) (any, bool) {
	f, ok := d.number(entry, e)
	if !ok {
		return nil, false
	}
	n, _ := f.Float64()
	switch {
	case entry.Kind == Share && (n <= 0 || n > 1):
		d.wrong(entry, e, "%q is a part of one GPU: more than 0, less than 1.", entry.Name)
		return nil, false
	case n < 0 || n > 1e9:
		d.wrong(entry, e, "%q is a number from 0 to a billion.", entry.Name)
		return nil, false
	case !d.notZero(entry, e, n == 0):
		return nil, false
	case entry.Kind == Number:
		return n, true
	}
	if entry.Kind == Money {
		return int64(n*1e6 + 0.5), true
	}
	milli := n * 1000
	if rounded := muster.MilliCores(milli + 0.5); milli-float64(rounded) < 1e-6 && float64(rounded)-milli < 1e-6 {
		switch {
		case entry.Kind == Cores:
			return rounded, true
		case entry.Kind == Milli:
			return muster.Milli(rounded), true
		case rounded == 1000: // all of it
			return muster.MilliGPUs(0), true
		}
		return muster.MilliGPUs(rounded), true
	}
	d.wrong(entry, e, "%q is counted in thousandths: at most three decimals.", entry.Name)
	return nil, false
}

func (d *Decoder) string(entry *Attr, e hclsyntax.Expression) (string, bool) {
	v, ok := d.literal(entry, e)
	if !ok {
		return "", false
	}
	switch {
	case v.Type() == cty.String:
		return v.AsString(), true
	case d.asWritten(e):
		d.wrong(entry, e, "%q is a string: write it in quotes, %s.", entry.Name, quoted(entry, d.source(e)))
	default:
		d.wrong(entry, e, "%s%s.", d.wants(entry), d.got(e, v))
	}
	return "", false
}

// quoted shows a value in quotes, behind the argument's name unless it is an item of a list.
func quoted(entry *Attr, value string) string {
	if slices.Contains([]Kind{Strings, Texts, Map, TextMap, item}, entry.Kind) {
		return fmt.Sprintf("%q", value)
	}
	return fmt.Sprintf("%s = %q", entry.Name, value)
}

// word checks a string against the words that the argument knows, and gives it its meaning.
func (d *Decoder) word(entry *Attr, e hclsyntax.Expression, s string) (any, bool) {
	switch {
	case slices.Contains(entry.Unbuilt, s):
		d.error(ptr(e.Range()), "Not supported yet", "%s = %q is not supported yet.", entry.Name, s)
		return nil, false
	case entry.Words != nil && !slices.Contains(entry.Words, s):
		say := "It is " + orList(entry.Words) + "."
		if near := Nearest(s, entry.Words); near != "" {
			say = fmt.Sprintf("Did you mean %q?", near)
		}
		d.wrong(entry, e, "%q is not a value of %q. %s", s, entry.Name, say)
		return nil, false
	case entry.Parse == nil:
		return s, true
	}
	v, err := entry.Parse(s)
	if err != nil {
		d.wrong(entry, e, "%s.", sentence(err))
		return nil, false
	}
	return v, true
}

// unit reads Duration and Size. What other schedulers write gets the same in our words.
func (d *Decoder) unit(entry *Attr, e hclsyntax.Expression) (any, bool) {
	v, ok := d.literal(entry, e)
	if !ok {
		return nil, false
	}
	switch {
	case v.Type() == cty.Number && d.asWritten(e):
		d.wrong(entry, e, "A bare number has no unit: say %s.", bareNumber(entry.Kind, d.source(e)))
		return nil, false
	case v.Type() != cty.String:
		d.wrong(entry, e, "%s%s.", d.wants(entry), d.got(e, v))
		return nil, false
	}
	s := v.AsString()
	var err error
	if entry.Kind == Size {
		var b muster.Bytes
		if b, err = muster.ParseBytes(s); err == nil {
			return b, d.notZero(entry, e, b == 0)
		}
		if ours := oursForSize(s); ours != "" {
			err = fmt.Errorf("%q is not how a size is written: say %q", s, ours)
		}
	} else {
		var t time.Duration
		if t, err = muster.ParseDuration(s); err == nil {
			return t, d.notZero(entry, e, t == 0)
		}
		if ours := oursForDuration(s); ours != "" {
			err = fmt.Errorf("%q is not how a duration is written: say %q", s, ours)
		}
	}
	d.wrong(entry, e, "%s.", sentence(err))
	return nil, false
}

func bareNumber(kind Kind, number string) string {
	if kind == Size {
		return fmt.Sprintf("%q", number+"GiB")
	}
	return fmt.Sprintf("%q, %q or %q", number+"s", number+"m", number+"h")
}

var (
	slurmTime   = regexp.MustCompile(`^(?:(\d{1,4})-)?(\d{1,5})(?::(\d{1,2}))?(?::(\d{1,2}))?$`)
	slurmSize   = regexp.MustCompile(`^(\d+(?:\.\d+)?) ?([KMGT])(?:i|ib|IB)?$`)
	spacedOrSma = regexp.MustCompile(`^(\d+(?:\.\d+)?) *([a-zA-Z]+)$`)
)

// oursForSize reads "64G", "64Gi", "64 GiB", "64gib"; "" when it can't tell.
func oursForSize(s string) string {
	if m := slurmSize.FindStringSubmatch(s); m != nil {
		return m[1] + m[2] + "iB"
	}
	if m := spacedOrSma.FindStringSubmatch(s); m != nil {
		for _, unit := range []string{"KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB", "B"} {
			if strings.EqualFold(m[2], unit) {
				return m[1] + unit
			}
		}
	}
	return ""
}

// oursForDuration reads Slurm's "4:00:00", "1-12", "30:00", and units written out; "" when it can't tell.
func oursForDuration(s string) string {
	if m := slurmTime.FindStringSubmatch(s); m != nil && (m[1] != "" || m[3] != "") {
		part := func(i int) time.Duration {
			var n int64
			_, _ = fmt.Sscan(m[i], &n) // digits, or nothing: 0
			return time.Duration(n)
		}
		switch {
		case m[1] != "": // days-hours[:minutes[:seconds]]
			return muster.FormatDuration(part(1)*24*time.Hour + part(2)*time.Hour + part(3)*time.Minute + part(4)*time.Second)
		case m[4] != "": // hours:minutes:seconds
			return muster.FormatDuration(part(2)*time.Hour + part(3)*time.Minute + part(4)*time.Second)
		default: // minutes:seconds
			return muster.FormatDuration(part(2)*time.Minute + part(3)*time.Second)
		}
	}
	if m := spacedOrSma.FindStringSubmatch(s); m != nil {
		for _, unit := range []string{"seconds", "minutes", "hours", "days", "weeks"} {
			if word := strings.ToLower(m[2]); strings.HasPrefix(unit, word) && unit != "weeks" {
				return m[1] + unit[:1]
			}
		}
	}
	return ""
}

func (d *Decoder) list(entry *Attr, e hclsyntax.Expression) (any, bool) {
	e, ok := d.reduce(entry, e)
	if !ok {
		return nil, false
	}
	tuple, isList := e.(*hclsyntax.TupleConsExpr)
	if !isList {
		item := *entry
		if item.Kind == Ints {
			item.Kind = Int
		}
		if v, ok := d.literal(&item, e); ok && d.asWritten(e) {
			d.wrong(entry, e, "%q is a list: write it in brackets, %s = [%s].", entry.Name, entry.Name, d.source(e))
		} else if ok {
			d.wrong(entry, e, "%s%s.", d.wants(entry), d.got(e, v))
		}
		return nil, false
	}
	var items []any
	for i, x := range tuple.Exprs {
		d.Places[fmt.Sprintf("%s[%d]", d.at, i)] = *firstLine(ptr(x.Range()))
		v, good := d.item(entry, x)
		ok = ok && good
		items = append(items, v)
	}
	if len(items) == 0 && ok && entry.Positive {
		d.wrong(entry, e, "The list is empty. Leave %q out for its default.", entry.Name)
		return nil, false
	}
	return items, ok
}

func (d *Decoder) item(entry *Attr, e hclsyntax.Expression) (any, bool) {
	switch entry.Kind {
	case Ints:
		return d.int(&Attr{Name: entry.Name, Kind: Int}, e)
	case Texts:
		return d.text(entry, e, true)
	}
	s, ok := d.string(entry, e)
	if !ok {
		return nil, false
	}
	return d.word(entry, e, s)
}

func (d *Decoder) pairs(entry *Attr, e hclsyntax.Expression) (any, bool) {
	e, ok := d.reduce(entry, e)
	if !ok {
		return nil, false
	}
	object, isMap := e.(*hclsyntax.ObjectConsExpr)
	if !isMap {
		if v, ok := d.literal(entry, e); ok {
			d.wrong(entry, e, "%s%s.", d.wants(entry), d.got(e, v))
		}
		return nil, false
	}
	var labels []muster.Label
	lines := map[string]int{}
	for _, item := range object.Items {
		key, good := d.key(entry, item.KeyExpr)
		if good && lines[key] > 0 {
			d.error(ptr(item.KeyExpr.Range()), "Key given twice", "%q is already in %q, on line %d.", key, entry.Name, lines[key])
			good = false
		}
		lines[key] = item.KeyExpr.Range().Start.Line
		d.Places[join(d.at, key)] = *firstLine(ptr(hcl.RangeBetween(item.KeyExpr.Range(), item.ValueExpr.Range())))
		value, fine := d.text(entry, item.ValueExpr, entry.Kind == TextMap)
		ok = ok && good && fine
		if ok {
			labels = append(labels, muster.Label{Key: key, Value: value.(string)})
		}
	}
	if !ok {
		return nil, false
	}
	if entry.Kind == Map {
		sort.Slice(labels, func(i, j int) bool { return labels[i].Key < labels[j].Key })
		return labels, true
	}
	var env []muster.EnvVar
	for _, l := range labels {
		env = append(env, muster.EnvVar{Name: l.Key, Value: l.Value})
	}
	return env, true
}

// quotas reads a number of GPUs of any model, or numbers by model.
func (d *Decoder) quotas(entry *Attr, e hclsyntax.Expression) (any, bool) {
	object, byModel := e.(*hclsyntax.ObjectConsExpr)
	if !byModel {
		n, ok := d.int(entry, e)
		switch {
		case !ok:
			return nil, false
		case n < 0:
			d.wrong(entry, e, "%q is negative.", entry.Name)
			return nil, false
		case n == 0:
			return []muster.Quota(nil), true
		}
		return []muster.Quota{{GPUs: n}}, true
	}
	ok := true
	var list []muster.Quota
	lines := map[string]int{}
	for _, item := range object.Items {
		key, good := d.key(entry, item.KeyExpr)
		if good && lines[key] > 0 {
			d.error(ptr(item.KeyExpr.Range()), "Key given twice", "%q is already in %q, on line %d.", key, entry.Name, lines[key])
			good = false
		}
		lines[key] = item.KeyExpr.Range().Start.Line
		d.Places[join(d.at, key)] = *firstLine(ptr(hcl.RangeBetween(item.KeyExpr.Range(), item.ValueExpr.Range())))
		n, fine := d.int(&Attr{Name: key, Kind: Int}, item.ValueExpr)
		if fine && n < 1 {
			d.wrong(entry, item.ValueExpr, "%d GPUs of a model: leave the model out.", n)
			fine = false
		}
		ok = ok && good && fine
		list = append(list, muster.Quota{Model: key, GPUs: n})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Model < list[j].Model })
	return list, ok
}

func (d *Decoder) key(entry *Attr, e hclsyntax.Expression) (string, bool) {
	if k, ok := e.(*hclsyntax.ObjectConsKeyExpr); ok {
		if !k.ForceNonLiteral {
			if v, diags := k.Value(nil); !diags.HasErrors() && v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
				return v.AsString(), true
			}
		}
		e = k.Wrapped
	}
	v, ok := d.literal(entry, e)
	if !ok {
		return "", false
	}
	if v.Type() != cty.String {
		d.wrong(entry, e, "A key is a name, or a string in quotes.")
		return "", false
	}
	return v.AsString(), true
}

// source quotes an expression as it was written, cut to one short line.
func (d *Decoder) source(e hclsyntax.Expression) string {
	text := d.raw(e.Range())
	if text == "" || len(text) > 60 || strings.Contains(text, "\n") {
		return "…"
	}
	return text
}

// raw is the source of a range; "" where there is none.
func (d *Decoder) raw(r hcl.Range) string {
	if r.Start.Byte < 0 || r.End.Byte > len(d.Source) || r.Start.Byte > r.End.Byte {
		return ""
	}
	return string(d.Source[r.Start.Byte:r.End.Byte])
}

func sentence(err error) string {
	var e *muster.Error
	if errors.As(err, &e) {
		return upper(e.Error())
	}
	return upper(err.Error())
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func orList(words []string) string {
	quotedWords := make([]string, len(words))
	for i, w := range words {
		quotedWords[i] = fmt.Sprintf("%q", w)
	}
	if len(words) == 1 {
		return quotedWords[0]
	}
	return strings.Join(quotedWords[:len(words)-1], ", ") + " or " + quotedWords[len(words)-1]
}
