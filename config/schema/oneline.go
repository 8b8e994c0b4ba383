package schema

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// explainOneLine rewrites the parser's error about a block on one line that holds more than one argument: it shows the block
// as it must be written. It says whether that was the mistake.
func explainOneLine(diag *hcl.Diagnostic, src []byte, tokens hclsyntax.Tokens) bool {
	if diag.Summary != "Invalid single-argument block definition" && diag.Summary != "Argument definition required" || diag.Subject == nil {
		return false
	}
	block := blockOnLine(tokens, diag.Subject.Start)
	if len(block) == 0 {
		return false
	}
	text := lineByLine(src, block)
	if text == "" {
		return false
	}
	at := block[0].Range
	at.End = diag.Subject.End
	diag.Summary = "One-line block with more than one argument"
	diag.Subject, diag.Context = firstLine(&at), nil
	diag.Detail = "A block on one line holds one argument and no block. Line by line:\n\n" + text
	return true
}

// isBlockBrace says whether the brace at i opens a block, not an object.
func isBlockBrace(tokens hclsyntax.Tokens, i int) bool {
	if i == 0 || tokens[i].Type != hclsyntax.TokenOBrace {
		return false
	}
	t := tokens[i-1].Type
	return t == hclsyntax.TokenIdent || t == hclsyntax.TokenCQuote
}

// blockOnLine gives the tokens of the outermost block that opens on the line of pos and holds pos.
func blockOnLine(tokens hclsyntax.Tokens, pos hcl.Pos) hclsyntax.Tokens {
	var open []int
	for i := range tokens {
		if tokens[i].Range.Start.Byte >= pos.Byte {
			break
		}
		switch tokens[i].Type {
		case hclsyntax.TokenOBrace:
			open = append(open, i)
		case hclsyntax.TokenCBrace:
			open = open[:max(0, len(open)-1)]
		}
	}
	for _, brace := range open {
		if tokens[brace].Range.Start.Line != pos.Line || !isBlockBrace(tokens, brace) {
			continue
		}
		first := brace
		for first > 0 && headerToken(tokens[first-1].Type) {
			first--
		}
		depth := 0
		for last := brace; last < len(tokens) && last-first < 200; last++ {
			switch tokens[last].Type {
			case hclsyntax.TokenOBrace:
				depth++
			case hclsyntax.TokenCBrace:
				if depth--; depth == 0 {
					return tokens[first : last+1]
				}
			}
		}
		return nil
	}
	return nil
}

func headerToken(t hclsyntax.TokenType) bool {
	return t == hclsyntax.TokenIdent || t == hclsyntax.TokenOQuote || t == hclsyntax.TokenCQuote || t == hclsyntax.TokenQuotedLit
}

// lineByLine prints a block with each of its arguments and blocks on a line of its own.
func lineByLine(src []byte, block hclsyntax.Tokens) string {
	var out bytes.Buffer
	var open []bool // for each brace or bracket: is it a block's?
	header := false
	newline := func() {
		if out.Len() > 0 && out.Bytes()[out.Len()-1] != '\n' {
			out.WriteByte('\n')
		}
	}
	for i := range block {
		t := &block[i]
		inBlock := len(open) > 0 && open[len(open)-1]
		switch t.Type {
		case hclsyntax.TokenOHeredoc:
			return "" // it can't stand on one line
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp:
			isBlock := isBlockBrace(block, i)
			open = append(open, isBlock)
			if out.Write(t.Bytes); isBlock {
				header = false
				newline()
			} else {
				out.WriteByte(' ')
			}
			continue
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			if len(open) == 0 {
				return ""
			}
			open = open[:len(open)-1]
			if inBlock {
				newline()
			}
			if out.Write(t.Bytes); inBlock {
				newline()
			}
			continue
		case hclsyntax.TokenComma, hclsyntax.TokenSemicolon, hclsyntax.TokenNewline:
			if inBlock {
				newline()
				continue
			}
		case hclsyntax.TokenIdent:
			if inBlock && !header && i+1 < len(block) && (block[i+1].Type == hclsyntax.TokenEqual || startsBlock(block[i+1:])) {
				newline()
				header = block[i+1].Type != hclsyntax.TokenEqual
			}
		}
		if i > 0 && block[i-1].Range.End.Byte < t.Range.Start.Byte && out.Len() > 0 && out.Bytes()[out.Len()-1] != '\n' {
			out.Write(src[block[i-1].Range.End.Byte:t.Range.Start.Byte])
		}
		out.Write(t.Bytes)
	}
	text := string(hclwrite.Format(out.Bytes()))
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

// startsBlock says whether tokens go on as a block's header: labels, then a brace.
func startsBlock(tokens hclsyntax.Tokens) bool {
	for i := range tokens {
		if tokens[i].Type == hclsyntax.TokenOBrace {
			return true
		}
		if !headerToken(tokens[i].Type) {
			return false
		}
	}
	return false
}
