package jobfile

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/musterhpc/muster"
)

// fn is a function of the job file, with what docs show.
type fn struct {
	name, call, doc string
	impl            function.Function
}

// pure are the functions of the job file: what they give depends on what they are given, and its size is bounded by it.
var pure = []fn{
	{"abs", "abs(-3)", "3", stdlib.AbsoluteFunc},
	{"ceil", "ceil(2.1)", "3", stdlib.CeilFunc},
	{"floor", "floor(2.9)", "2", stdlib.FloorFunc},
	{"max", "max(1, 5, 3)", "5", stdlib.MaxFunc},
	{"min", "min(1, 5, 3)", "1", stdlib.MinFunc},
	{"parseint", `parseint("ff", 16)`, "255", stdlib.ParseIntFunc},

	{"format", `format("%03d", 7)`, `"007"`, formatFunc},
	{"join", `join(",", ["a", "b"])`, `"a,b"`, joinFunc},
	{"split", `split(",", "a,b")`, `["a", "b"]`, stdlib.SplitFunc},
	{"replace", `replace("a.b", ".", "-")`, `"a-b"`, replaceFunc},
	{"lower", `lower("H100")`, `"h100"`, stdlib.LowerFunc},
	{"upper", `upper("h100")`, `"H100"`, stdlib.UpperFunc},
	{"trim", `trim("--a--", "-")`, `"a"`, stdlib.TrimFunc},
	{"trimprefix", `trimprefix("v1.2", "v")`, `"1.2"`, stdlib.TrimPrefixFunc},
	{"trimsuffix", `trimsuffix("a.yaml", ".yaml")`, `"a"`, stdlib.TrimSuffixFunc},
	{"trimspace", `trimspace(" a ")`, `"a"`, stdlib.TrimSpaceFunc},
	{"substr", `substr("llama", 0, 2)`, `"ll"`, stdlib.SubstrFunc},
	{"startswith", `startswith("llama", "ll")`, "true", affixFunc(strings.HasPrefix)},
	{"endswith", `endswith("a.yaml", ".yaml")`, "true", affixFunc(strings.HasSuffix)},
	{"basename", `basename("/data/a.bin")`, `"a.bin"`, pathFunc(func(s string) string { return s[strings.LastIndexByte(s, '/')+1:] })},
	{"dirname", `dirname("/data/a.bin")`, `"/data"`, pathFunc(func(s string) string { return s[:max(0, strings.LastIndexByte(s, '/'))] })},

	{"length", `length(["a", "b"])`, "2", lengthFunc},
	{"contains", `contains(["a", "b"], "b")`, "true", stdlib.ContainsFunc},
	{"element", `element(["a", "b"], 3)`, `"b"`, stdlib.ElementFunc},
	{"concat", `concat(["a"], ["b"])`, `["a", "b"]`, stdlib.ConcatFunc},
	{"flatten", `flatten([["a"], ["b"]])`, `["a", "b"]`, stdlib.FlattenFunc},
	{"distinct", `distinct(["a", "a"])`, `["a"]`, stdlib.DistinctFunc},
	{"compact", `compact(["a", ""])`, `["a"]`, stdlib.CompactFunc},
	{"reverse", `reverse(["a", "b"])`, `["b", "a"]`, stdlib.ReverseListFunc},
	{"slice", `slice(["a", "b", "c"], 1, 3)`, `["b", "c"]`, stdlib.SliceFunc},
	{"sort", `sort(["b", "a"])`, `["a", "b"]`, stdlib.SortFunc},
	{"range", "range(3)", "[0, 1, 2]", rangeFunc},
	{"keys", "keys({ a = 1 })", `["a"]`, stdlib.KeysFunc},
	{"values", "values({ a = 1 })", "[1]", stdlib.ValuesFunc},
	{"lookup", `lookup({ a = "x" }, "b", "y")`, `"y"`, stdlib.LookupFunc},
	{"merge", "merge({ a = 1 }, { b = 2 })", "{ a = 1, b = 2 }", stdlib.MergeFunc},
	{"zipmap", `zipmap(["a"], [1])`, "{ a = 1 }", stdlib.ZipmapFunc},
	{"coalesce", `coalesce(null, "a")`, `"a"`, stdlib.CoalesceFunc},

	{"tostring", "tostring(3)", `"3"`, stdlib.MakeToFunc(cty.String)},
	{"tonumber", `tonumber("3")`, "3", stdlib.MakeToFunc(cty.Number)},
	{"tobool", `tobool("true")`, "true", stdlib.MakeToFunc(cty.Bool)},
	{"jsonencode", "jsonencode({ lr = 0.1 })", `"{\"lr\":0.1}"`, stdlib.JSONEncodeFunc},
	{"jsondecode", `jsondecode("[1]")`, "[1]", stdlib.JSONDecodeFunc},
}

// functions are the pure ones, and file. read is nil where no file may be read.
func functions(read func(name string) ([]byte, error)) map[string]function.Function {
	out := make(map[string]function.Function, len(pure)+1)
	for _, f := range pure {
		out[f.name] = f.impl
	}
	out["file"] = fileFunc(read)
	return out
}

const maxText = muster.MaxSpecSize // bytes that one function may make

var errTooLong = fmt.Errorf("the text is longer than %d KiB", maxText>>10)

// bounded makes a function that looks at its arguments first.
func bounded(of function.Function, check func(args []cty.Value) error) function.Function {
	return function.New(&function.Spec{
		Params: of.Params(), VarParam: of.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) { return of.ReturnTypeForValues(args) },
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if err := check(args); err != nil {
				return cty.NilVal, err
			}
			return of.Call(args)
		},
	})
}

var width = regexp.MustCompile(`%[^a-zA-Z%]*[0-9]{4}|%[^a-zA-Z%]*\*`)

var formatFunc = bounded(stdlib.FormatFunc, func(args []cty.Value) error {
	if width.MatchString(args[0].AsString()) {
		return errors.New("a width in a format has at most three digits")
	}
	return nil
})

var joinFunc = bounded(stdlib.JoinFunc, func(args []cty.Value) error {
	items := 0
	for _, list := range args[1:] {
		if list.IsKnown() && !list.IsNull() {
			items += list.LengthInt()
		}
	}
	if len(args[0].AsString())*items > maxText {
		return errTooLong
	}
	return nil
})

var replaceFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "text", Type: cty.String}, {Name: "old", Type: cty.String}, {Name: "new", Type: cty.String}},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		text, old, new := args[0].AsString(), args[1].AsString(), args[2].AsString()
		if len(text)+strings.Count(text, old)*len(new) > maxText {
			return cty.NilVal, errTooLong
		}
		return cty.StringVal(strings.ReplaceAll(text, old, new)), nil
	},
})

// rangeFunc bounds what stdlib's bounds only by its own 1,024.
var rangeFunc = function.New(&function.Spec{
	VarParam: &function.Parameter{Name: "numbers", Type: cty.Number},
	Type:     function.StaticReturnType(cty.List(cty.Number)),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		bounds := []int64{0, 0, 1} // start, limit, step
		switch len(args) {
		case 1:
			args = []cty.Value{cty.Zero, args[0]}
		case 2, 3:
		default:
			return cty.NilVal, errors.New("say range(limit), range(start, limit) or range(start, limit, step)")
		}
		for i, arg := range args {
			n, err := strconv.ParseInt(arg.AsBigFloat().Text('f', -1), 10, 32)
			if err != nil {
				return cty.NilVal, errors.New("whole numbers are expected")
			}
			bounds[i] = n
		}
		start, limit, step := bounds[0], bounds[1], bounds[2]
		if step == 0 {
			return cty.NilVal, errors.New("the step is 0")
		}
		var list []cty.Value
		for n := start; step > 0 && n < limit || step < 0 && n > limit; n += step {
			if list = append(list, cty.NumberIntVal(n)); len(list) > muster.MaxRanks {
				return cty.NilVal, fmt.Errorf("it has more than %d numbers", muster.MaxRanks)
			}
		}
		if len(list) == 0 {
			return cty.ListValEmpty(cty.Number), nil
		}
		return cty.ListVal(list), nil
	},
})

// lengthFunc counts elements, and the characters of a text.
var lengthFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		switch v := args[0]; {
		case v.Type() == cty.String:
			return cty.NumberIntVal(int64(utf8.RuneCountInString(v.AsString()))), nil
		case v.CanIterateElements():
			return cty.NumberIntVal(int64(v.LengthInt())), nil
		}
		return cty.NilVal, errors.New("a list, a map or a text is expected")
	},
})

func affixFunc(has func(text, affix string) bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "text", Type: cty.String}, {Name: "affix", Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(has(args[0].AsString(), args[1].AsString())), nil
		},
	})
}

func pathFunc(part func(string) string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.StringVal(part(args[0].AsString())), nil
		},
	})
}

// fileFunc reads a text where the job is submitted from.
func fileFunc(read func(name string) ([]byte, error)) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if read == nil {
				return cty.NilVal, errors.New("a server reads no file: run it with muster run, or put the text itself here")
			}
			name := args[0].AsString()
			text, err := read(name)
			var pathError *fs.PathError
			switch {
			case errors.As(err, &pathError):
				return cty.NilVal, fmt.Errorf("%s: %w", pathError.Path, pathError.Err)
			case err != nil:
				return cty.NilVal, err
			case len(text) > maxText:
				return cty.NilVal, fmt.Errorf("%s is longer than %d KiB: name it in upload, and read it in the task", name, maxText>>10)
			case !utf8.Valid(text) || strings.IndexByte(string(text), 0) >= 0:
				return cty.NilVal, fmt.Errorf("%s is no text: name it in upload, and read it in the task", name)
			}
			// Lines as an editor of Windows ends them: no shell reads them so.
			return cty.StringVal(strings.ReplaceAll(string(text), "\r\n", "\n")), nil
		},
	})
}
