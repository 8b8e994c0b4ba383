package schema

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// The bounds of a file: HCL's parser recurses, so what it is given must not be deep.
const (
	MaxBytes = 1 << 20 // of a file
	MaxDepth = 32      // of blocks, brackets, templates and quotes in each other
	maxChain = 256     // operators in one expression: each deepens the syntax tree
)

// Parse reads the syntax of a file. Its body is nil when there is an error that leaves nothing to decode.
func Parse(name string, src []byte) (*hclsyntax.Body, hcl.Diagnostics) {
	if diag := notText(name, src); diag != nil {
		return nil, hcl.Diagnostics{diag}
	}
	masked, tokens, diags := maskForeign(name, src)
	if diag := tooDeep(tokens); diag != nil {
		return nil, append(diags, diag)
	}
	file, syntax := hclsyntax.ParseConfig(masked, name, hcl.InitialPos)
	twice := func(d *hcl.Diagnostic) bool { return d.Summary == "Attribute redefined" }
	if slices.ContainsFunc(syntax, func(d *hcl.Diagnostic) bool { return !twice(d) }) {
		first := firstOf(syntax)
		if !explainOneLine(first, masked, tokens) {
			explainSyntax(first, masked, tokens)
		}
		// What the parser says after its first error is mostly about the same mistake.
		return nil, append(diags, first)
	}
	for _, d := range syntax {
		d.Summary = "Argument given twice"
		m := firstPlace.FindStringSubmatch(d.Detail)
		if d.Detail = "Each argument may be set only once."; m != nil {
			d.Detail += " The first is on line " + m[1] + "."
		}
	}
	return file.Body.(*hclsyntax.Body), append(diags, syntax...)
}

// context parses a file only to say in which block a position is; nil when it can't.
func context(name string, src []byte) any {
	if notText(name, src) != nil {
		return nil
	}
	masked, tokens, _ := maskForeign(name, src)
	if tooDeep(tokens) != nil {
		return nil
	}
	file, _ := hclsyntax.ParseConfig(masked, name, hcl.InitialPos)
	if file == nil {
		return nil
	}
	return file.Nav
}

func notText(name string, src []byte) *hcl.Diagnostic {
	at := func(offset int) *hcl.Range {
		line := 1 + bytes.Count(src[:offset], []byte("\n"))
		column := offset - bytes.LastIndexByte(src[:offset], '\n')
		pos := hcl.Pos{Line: line, Column: column, Byte: offset}
		return &hcl.Range{Filename: name, Start: pos, End: pos}
	}
	switch {
	case len(src) > MaxBytes:
		return About(name, "File too large", "%s is larger than 1 MiB. Data belongs in files of its own that the task reads.", name)
	case bytes.IndexByte(src, 0) >= 0:
		return About(name, "Not a text file", "%s has a zero byte: it is a binary file, not HCL.", name)
	case !utf8.Valid(src):
		bad := 0
		for bad < len(src) {
			r, size := utf8.DecodeRune(src[bad:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			bad += size
		}
		return About(name, "Not a text file", "%s is not UTF-8: byte %d on line %d is 0x%02X.", name, at(bad).Start.Column, at(bad).Start.Line, src[bad])
	}
	return nil
}

// tooDeep bounds what the parser, and all that walk its tree, must recurse.
func tooDeep(tokens hclsyntax.Tokens) *hcl.Diagnostic {
	type level struct {
		opened hclsyntax.TokenType
		chain  int // operators since the last separator
	}
	levels := make([]level, 1, MaxDepth+2)
	levels[0].opened = hclsyntax.TokenOBrace
	for i := range tokens {
		t := &tokens[i]
		top := &levels[len(levels)-1]
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl, hclsyntax.TokenOHeredoc:
			top.chain++ // a[b][c] is a chain too
			if len(levels) > MaxDepth {
				return problem(&t.Range, "Nested too deeply", "Blocks and brackets may stand in each other up to %d deep.", MaxDepth)
			}
			levels = append(levels, level{opened: t.Type})
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenTemplateSeqEnd, hclsyntax.TokenCHeredoc:
			if len(levels) > 1 {
				levels = levels[:len(levels)-1]
			}
		case hclsyntax.TokenNewline:
			if top.opened == hclsyntax.TokenOBrace { // elsewhere an expression goes on over the end of a line
				top.chain = 0
			}
		case hclsyntax.TokenComma, hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit:
			top.chain = 0
		case hclsyntax.TokenPlus, hclsyntax.TokenMinus, hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent,
			hclsyntax.TokenBang, hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenQuestion, hclsyntax.TokenEqualOp,
			hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan, hclsyntax.TokenLessThanEq, hclsyntax.TokenGreaterThan,
			hclsyntax.TokenGreaterThanEq:
			top.chain++
		}
		if top.chain > maxChain {
			return problem(&t.Range, "Expression too long", "An expression may have up to %d operators.", maxChain)
		}
	}
	return nil
}

func firstOf(diags hcl.Diagnostics) *hcl.Diagnostic {
	return slices.MinFunc(diags, func(a, b *hcl.Diagnostic) int { return start(a) - start(b) })
}

func start(d *hcl.Diagnostic) int {
	if d.Subject == nil {
		return -1
	}
	return d.Subject.Start.Byte
}

// firstPlace finds the line in the parser's "was already set at FILE:LINE,COLUMN-COLUMN."
var firstPlace = regexp.MustCompile(`:(\d+),\d+-\d+\. `)

func problem(at *hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: firstLine(at)}
}

// firstLine keeps what is quoted of the source to one line.
func firstLine(r *hcl.Range) *hcl.Range {
	if r == nil || r.Start.Line == r.End.Line {
		return r
	}
	cut := *r
	cut.End = cut.Start
	return &cut
}
