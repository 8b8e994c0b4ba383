// Package schema reads HCL files by a table: what may stand where, of which kind, with which default, and whether it is
// built yet. The job file, the agent's file and the client's context file are each one such table; decoding, suggestions for
// unknown words and "not supported yet" all come from it.
package schema

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Kind is what an argument's value looks like in the file, and what Go type its Field has.
type Kind int

// The kinds.
const (
	String   Kind = iota // "x": string, or what Attr.Parse makes of it
	Scalar               // "x", 3 or true: string
	Text                 // a string that may hold run-time values: string, as muster.SplitText reads it
	Bool                 // true: bool
	Not                  // true: a bool that is false then
	Int                  // 3: int
	Number               // 0.5: float64
	Cores                // 0.5: muster.MilliCores
	Share                // 0.5: muster.MilliGPUs, 0 for a whole one
	Money                // 2.10: int64, in micro-units
	Milli                // 0.5: muster.Milli
	Quotas               // 64, or { H100 = 64 }: []muster.Quota sorted by model
	Duration             // "90s": time.Duration
	Size                 // "64GiB": muster.Bytes
	Strings              // ["a", "b"]: []string, or a slice of what Attr.Parse makes
	Texts                // like Strings, with run-time values
	Ints                 // [0, 3]: []int
	Map                  // { a = "b" }: []muster.Label sorted by key, or map[string]string
	TextMap              // { A = "b" } with run-time values: []muster.EnvVar in the file's order
	Any                  // any expression, as it is: hclsyntax.Expression; of arguments that are not built yet nothing
	item                 // a value in a list or map
)

// Body is what may stand in a file or between a block's braces.
type Body struct {
	Attrs  []Attr
	Blocks []Block
	Free   string // the Field, of []Free, that takes arguments whose names are the user's own; "" = there are none
}

// Free is an argument with a name of the user's own.
type Free struct {
	Name string
	At   hcl.Range // of the name
	Expr hclsyntax.Expression
}

// Attr is an argument.
type Attr struct {
	Name     string
	Kind     Kind
	Field    string // in the Go value that the body is read into, as in "Checkpoint.Grace"
	Default  string // as one would write it; "" = none. The Go side fills it in: this is for people, and tests compare
	Doc      string
	Later    bool                      // part of the contract, and not built yet
	Words    []string                  // what a String or Strings may say; nil: anything
	Unbuilt  []string                  // words that are part of the contract, and not built yet
	Parse    func(string) (any, error) // of a String or Strings: what the text means
	Positive bool                      // 0 and the empty list are refused: they would read as "not given"
	Required bool
}

// Block is a block.
type Block struct {
	Name     string
	Label    string // what its label says, as in "name"; "" = it has none
	LabelAs  string // the Field of the label
	Field    string // of the struct or pointer, or with Many the slice of structs; "" = the body's own fields
	Many     bool   // may stand several times
	Path     string // with Many: its name in field paths, as in "groups"; "" = Name
	Flat     bool   // in field paths its arguments are the outer body's
	Doc      string
	Later    bool
	Required bool
	New      func() any // of a pointer, or with Many of each: what it begins as; nil: the zero value
	Body     *Body
}

// Inside gives the body as it is when its Go value is a field of another.
func (b *Body) Inside(field string) Body {
	out := Body{Attrs: append([]Attr(nil), b.Attrs...), Blocks: append([]Block(nil), b.Blocks...)}
	for i := range out.Attrs {
		if out.Attrs[i].Field != "" {
			out.Attrs[i].Field = field + "." + out.Attrs[i].Field
		}
	}
	for i := range out.Blocks {
		switch block := &out.Blocks[i]; {
		case block.Later:
		case block.Field == "":
			block.Field = field
		default:
			block.Field = field + "." + block.Field
		}
	}
	return out
}

func (b *Body) attr(name string) *Attr {
	for i := range b.Attrs {
		if b.Attrs[i].Name == name {
			return &b.Attrs[i]
		}
	}
	return nil
}

func (b *Body) block(name string) *Block {
	for i := range b.Blocks {
		if b.Blocks[i].Name == name {
			return &b.Blocks[i]
		}
	}
	return nil
}

// Hint answers a word that people bring from elsewhere.
type Hint struct {
	In      string // the block it is for; "" = all
	Word    string
	Say     string // a sentence about ours; it ends before HCL
	HCL     string // what to write; %s stands for the value
	Example string // the value in HCL where what was written doesn't fit
	Fits    string // a regular expression: values that may be taken over as they were written; "" = none
}
