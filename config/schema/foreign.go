package schema

import (
	"bytes"
	"regexp"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Shell expansions that HCL's grammar can't read, or reads as something else: ${X:-y}, ${#X}, ${X%.*}, ${X[@]}.
var (
	shellAlways  = regexp.MustCompile(`^\$\{(?:[#@*?$!]|-[^0-9A-Za-z(]|[A-Za-z_]\w*(?::[-=+?0-9]|: -|\[[@*]\]|@[A-Za-z]\}))`)
	shellUnknown = regexp.MustCompile(`^\$\{([A-Za-z_]\w*)(?:##?[^}]|%%?[^ }]|//?[^ }]|\^\^?[^}]*\}|,,?[^}]*\}|[=?])`)
	directive    = regexp.MustCompile(`^%\{~?\s*(if|for|else|endif|endfor)\b`)
)

var forNames = regexp.MustCompile(`[\[{]\s*for\s+(\w+)(?:\s*,\s*(\w+))?\s+in\b`)

// Each round lexes the file again, so there is a bound; people fix ten at a time.
const foreignRounds = 10

// maskForeign finds what the shell, or curl, means by ${…} and %{…} and HCL can't read. Each is reported and its first byte
// replaced in a copy, so that the rest of the file parses as it was meant, at its old positions. It gives the copy's tokens too.
func maskForeign(name string, src []byte) ([]byte, hclsyntax.Tokens, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	masked, copied, directives := src, false, false
	bound := func(name string) bool { // by a for, somewhere in the file
		return slices.ContainsFunc(forNames.FindAllSubmatch(src, -1), func(m [][]byte) bool { return string(m[1]) == name || string(m[2]) == name })
	}
	for round := 0; ; round++ {
		tokens, _ := hclsyntax.LexConfig(masked, name, hcl.InitialPos) // the parser says it again
		found := false
		for i := range tokens {
			t := &tokens[i]
			offset := t.Range.Start.Byte
			var diag *hcl.Diagnostic
			switch rest := masked[offset:]; t.Type {
			case hclsyntax.TokenTemplateInterp:
				if diag = foreignInterp(t, rest, bound); diag == nil {
					continue
				}
			case hclsyntax.TokenTemplateControl:
				m := directive.FindSubmatch(rest)
				follows := m != nil && string(m[1]) != "if" && string(m[1]) != "for" // belongs to one that was said already
				if !follows || !directives {
					diag = foreignDirective(t, rest)
				}
				directives = directives || m != nil
			default:
				continue
			}
			if !copied {
				masked, copied = bytes.Clone(src), true
			}
			masked[offset] = '_'
			if diag != nil {
				diags = append(diags, diag)
			}
			found = true
			break
		}
		if !found || round == foreignRounds {
			return masked, tokens, diags
		}
	}
}

func foreignInterp(t *hclsyntax.Token, rest []byte, bound func(string) bool) *hcl.Diagnostic {
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if !shellAlways.Match(line) {
		m := shellUnknown.FindSubmatch(line)
		if m == nil || isRoot(string(m[1])) || bound(string(m[1])) {
			return nil
		}
	}
	text := braced(line)
	return problem(cover(t.Range, len(text)), "Shell expansion in ${}",
		"${…} is filled in by muster, not by the shell. The shell's own is written  $%s", text)
}

func foreignDirective(t *hclsyntax.Token, rest []byte) *hcl.Diagnostic {
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	text := braced(line)
	at := cover(t.Range, len(text))
	if directive.Match(rest) {
		return problem(at, "Template directive", "There are no directives here: choose with ${CONDITION ? A : B}, and join a list with ${join(\" \", LIST)}. For the text "+
			"itself write  %%%s", text)
	}
	return problem(at, "Unknown template directive", "%%{ begins a directive of HCL's templates. For the text itself write  %%%s", text)
}

// braced is the text up to the brace that closes the first one, or all of the line.
func braced(line []byte) []byte {
	depth := 0
	for i, c := range line {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return line[:i+1]
			}
		}
	}
	return bytes.TrimRight(line, " \t\r\"")
}

func cover(r hcl.Range, bytes int) *hcl.Range {
	r.End = r.Start
	r.End.Byte += bytes
	r.End.Column += bytes
	return &r
}
