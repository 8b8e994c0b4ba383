package schema

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/musterhpc/muster"
)

// Check says where a table does not fit the Go value that it is decoded into. It is for the tests of tables: decoding relies on it.
func (b *Body) Check(into any) error { return b.check("", reflect.TypeOf(into)) }

var goTypes = map[Kind]reflect.Type{
	String: reflect.TypeFor[string](), Scalar: reflect.TypeFor[string](), Text: reflect.TypeFor[string](), Bool: reflect.TypeFor[bool](),
	Not: reflect.TypeFor[bool](), Share: reflect.TypeFor[muster.MilliGPUs](), Any: reflect.TypeFor[hclsyntax.Expression](),
	Int: reflect.TypeFor[int](), Number: reflect.TypeFor[float64](), Cores: reflect.TypeFor[muster.MilliCores](), Money: reflect.TypeFor[int64](),
	Milli: reflect.TypeFor[muster.Milli](), Quotas: reflect.TypeFor[[]muster.Quota](),
	Duration: reflect.TypeFor[time.Duration](), Size: reflect.TypeFor[muster.Bytes](), Strings: reflect.TypeFor[[]string](),
	Texts: reflect.TypeFor[[]string](), Ints: reflect.TypeFor[[]int](), Map: reflect.TypeFor[[]muster.Label](), TextMap: reflect.TypeFor[[]muster.EnvVar](),
}

func (b *Body) check(path string, t reflect.Type) error {
	if f, ok := fieldType(t, b.Free); b.Free != "" && (!ok || f != reflect.TypeFor[[]Free]()) {
		return fmt.Errorf("%s: %s is no []Free", path, b.Free)
	}
	for i := range b.Attrs {
		a := &b.Attrs[i]
		at := join(path, a.Name)
		if a.Later {
			continue
		}
		f, ok := fieldType(t, a.Field)
		if !ok {
			return fmt.Errorf("%s: %s has no field %q", at, t, a.Field)
		}
		want := goTypes[a.Kind]
		if a.Parse != nil {
			v, _ := a.Parse(first(a.Words)) // only its type counts
			if want = reflect.TypeOf(v); want == nil || a.Kind == Strings {
				continue
			}
		}
		if a.Kind == Map && f == reflect.TypeFor[map[string]string]() {
			continue
		}
		if want == nil || !want.ConvertibleTo(f) || want.Kind() != f.Kind() {
			return fmt.Errorf("%s: field %s is a %s, and the table gives it a %v", at, a.Field, f, want)
		}
	}
	for i := range b.Blocks {
		block := &b.Blocks[i]
		at := join(path, block.Name)
		if block.Later {
			continue
		}
		f := t
		if block.Field != "" {
			var ok bool
			if f, ok = fieldType(t, block.Field); !ok {
				return fmt.Errorf("%s: %s has no field %q", at, t, block.Field)
			}
		}
		if block.Many && f.Kind() != reflect.Slice {
			return fmt.Errorf("%s: field %s is no slice", at, block.Field)
		}
		if block.Many || f.Kind() == reflect.Pointer {
			f = f.Elem()
			if block.New != nil && reflect.TypeOf(block.New()) != f {
				return fmt.Errorf("%s: New makes a %T, not a %s", at, block.New(), f)
			}
		}
		if label, ok := fieldType(f, block.LabelAs); block.Label != "" && (!ok || label.Kind() != reflect.String) {
			return fmt.Errorf("%s: its label needs a string field", at)
		}
		if block.Body == b { // a block may hold blocks of its own kind
			continue
		}
		if err := block.Body.check(at, f); err != nil {
			return err
		}
	}
	return nil
}

func first(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

func fieldType(t reflect.Type, path string) (reflect.Type, bool) {
	if path == "" || t.Kind() != reflect.Struct {
		return nil, false
	}
	name, rest, more := strings.Cut(path, ".")
	f, ok := t.FieldByName(name)
	if !ok || !more {
		return f.Type, ok
	}
	return fieldType(f.Type, rest)
}
