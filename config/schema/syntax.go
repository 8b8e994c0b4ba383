package schema

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// A slip is what the parser stumbled over, with the text around it.
type slip struct {
	diag   *hcl.Diagnostic
	src    []byte
	tokens hclsyntax.Tokens
	at     int    // the token where it stopped; len(tokens) at the end
	line   string // its line, without comment and blanks around
}

// explainSyntax rewrites the parser's error in the words of who wrote the file: what stands there, and what would be right.
func explainSyntax(diag *hcl.Diagnostic, src []byte, tokens hclsyntax.Tokens) {
	if diag.Subject == nil {
		return
	}
	s := &slip{diag: diag, src: src, tokens: tokens, at: len(tokens)}
	for i := range tokens {
		if tokens[i].Range.End.Byte > diag.Subject.Start.Byte {
			s.at = i
			break
		}
	}
	s.line = lineAt(src, diag.Subject.Start.Byte)
	for _, explain := range []func(*slip) bool{foreignLanguage, unclosedText, unclosedBracket, curlyQuotes, unquotedValue, wrongStart, oneArgument, wording} {
		if explain(s) {
			break
		}
	}
	diag.Subject, diag.Context = firstLine(diag.Subject), nil
}

// say replaces the error.
func (s *slip) say(summary, format string, args ...any) bool {
	s.diag.Summary, s.diag.Detail = summary, fmt.Sprintf(format, args...)
	return true
}

// sayAt replaces it, and points at a token.
func (s *slip) sayAt(token int, summary, format string, args ...any) bool {
	s.diag.Subject = ptr(s.tokens[token].Range)
	return s.say(summary, format, args...)
}

// lineAt is the line of a byte, without blanks around it and a comment behind it.
func lineAt(src []byte, offset int) string {
	offset = min(offset, len(src))
	from := bytes.LastIndexByte(src[:offset], '\n') + 1
	line, _, _ := bytes.Cut(src[from:], []byte("\n"))
	text := string(line)
	if !strings.ContainsRune(text, '"') { // a # in a string is none
		text, _, _ = strings.Cut(text, "#")
	}
	return strings.TrimSpace(text)
}

var yaml = regexp.MustCompile(`^(---|apiVersion:|kind:|[A-Za-z_-]+:\s*$)`)

// block begins what HCL has and shells and YAML haven't.
var block = regexp.MustCompile(`(?m)^[ \t]*[a-z_]+([ \t]+"[^"\n]*")*[ \t]*\{`)

// foreignLanguage knows what is no HCL at all.
func foreignLanguage(s *slip) bool {
	text := strings.TrimSpace(string(s.src[:min(len(s.src), 4<<10)]))
	first, _, _ := strings.Cut(text, "\n")
	if block.MatchString(text) {
		return false
	}
	start := s.diag.Subject
	s.diag.Subject = &hcl.Range{Filename: start.Filename, Start: hcl.InitialPos, End: hcl.InitialPos}
	switch {
	case strings.HasPrefix(first, "#!"):
		return s.say("Not HCL", "This is a script, not HCL. To run it as it is:  muster run -- bash FILE")
	case strings.HasPrefix(first, "{"):
		return s.say("Not HCL", "This is JSON, not HCL. A job begins  job \"NAME\" {")
	case yaml.MatchString(first):
		return s.say("Not HCL", "This is YAML, not HCL. A job begins  job \"NAME\" {  and its arguments are written  NAME = VALUE")
	}
	s.diag.Subject = start
	return false
}

// unclosedText explains strings, heredocs, interpolations and comments without their end.
func unclosedText(s *slip) bool {
	switch s.diag.Summary {
	case "Invalid multi-line string":
		for i := min(s.at, len(s.tokens)-1); i >= 0; i-- {
			if s.tokens[i].Type == hclsyntax.TokenOQuote {
				return s.sayAt(i, "Quote without its end", "The string that begins here has no closing quote on its line. A text of several lines is written\n\n"+
					"  script = <<-EOT\n    …\n  EOT")
			}
		}
	case "Unterminated template string":
		for i := len(s.tokens) - 1; i >= 0; i-- {
			switch s.tokens[i].Type {
			case hclsyntax.TokenOHeredoc:
				marker := strings.Trim(string(s.tokens[i].Bytes), "<-\r\n ")
				more := ""
				for n, line := range strings.Split(string(s.src[s.tokens[i].Range.End.Byte:]), "\n") {
					if rest, ok := strings.CutPrefix(strings.TrimSpace(line), marker); ok && rest != "" {
						more = fmt.Sprintf(" On line %d there is more beside it.", s.tokens[i].Range.Start.Line+1+n)
						break
					}
				}
				return s.sayAt(i, "Text without its end", "The text that begins here ends with a line that holds %s and nothing else.%s", marker, more)
			case hclsyntax.TokenOQuote:
				return s.sayAt(i, "Quote without its end", "The string that begins here has no closing quote.")
			}
		}
	case "Unclosed template interpolation sequence", "Unclosed template control sequence":
		return s.say("${ without its }", "The value that begins here has no closing brace. For the text itself write  $${")
	case "Extra characters after interpolation expression":
		for i := min(s.at, len(s.tokens)-1); i >= 0; i-- {
			if s.tokens[i].Type == hclsyntax.TokenTemplateInterp {
				rest, _, _ := bytes.Cut(s.src[s.tokens[i].Range.Start.Byte:], []byte("\n"))
				text := braced(rest)
				s.diag.Subject = cover(s.tokens[i].Range, len(text))
				return s.say("More than one value in ${}", "One value or expression stands in ${…}, and %s is none. For the text itself, for a shell, write  $%s", text, text)
			}
		}
	case "Unclosed configuration block":
		return s.say("Block without its end", "No } closes the block that begins here. It may be missing in a block inside.")
	}
	if strings.HasPrefix(s.line, "/*") {
		return s.say("Comment without its end", "No */ closes the comment that begins here.")
	}
	return false
}

var closers = map[hclsyntax.TokenType]string{hclsyntax.TokenOBrack: "]", hclsyntax.TokenOParen: ")", hclsyntax.TokenOBrace: "}"}

// unclosedBracket explains lists, maps and calls that go on where something else was meant to begin.
func unclosedBracket(s *slip) bool {
	var what string
	switch s.diag.Summary {
	case "Missing item separator":
		what = "the items of a list"
	case "Missing attribute separator":
		what = "the values of a map"
	case "Missing argument separator":
		what = "the arguments of a function"
	case "Missing expression": // the end of the file
	default:
		return false
	}
	var open []int
	for i := 0; i < s.at; i++ {
		switch s.tokens[i].Type {
		case hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOBrace:
			open = append(open, i)
		case hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCBrace:
			open = open[:max(0, len(open)-1)]
		}
	}
	if len(open) == 0 {
		return false
	}
	last := open[len(open)-1]
	if opener := &s.tokens[last]; what == "" || s.tokens[min(s.at, len(s.tokens)-1)].Range.Start.Line > opener.Range.Start.Line && !strings.HasPrefix(s.line, `"`) {
		return s.sayAt(last, "Bracket without its end", "No %s closes what begins here.", closers[opener.Type])
	}
	return s.say("Missing comma", "A comma stands between %s.", what)
}

func curlyQuotes(s *slip) bool {
	if i := strings.IndexAny(s.line, "“”„‘’«»"); i >= 0 {
		return s.say("Quotes of a text editor", "These quotes are for letters: strings stand in straight ones, \"…\".")
	}
	return false
}

var (
	assigned = regexp.MustCompile(`^([A-Za-z_][\w-]*)\s*=\s*(.*)$`)
	unit     = regexp.MustCompile(`^\d[\d.]*[A-Za-z]+\d*[A-Za-z]*$`)
	grouped  = regexp.MustCompile(`^\d+(_\d+)+$`)
)

// unquotedValue explains NAME = VALUE where VALUE was meant as a text, or isn't there.
func unquotedValue(s *slip) bool {
	switch s.diag.Summary {
	case "Invalid expression", "Invalid character", "Unsupported operator", "Missing newline after argument":
	default:
		return false
	}
	m := assigned.FindStringSubmatch(s.line)
	if m == nil {
		return false
	}
	name, value := m[1], strings.TrimRight(m[2], ";, ")
	switch {
	case strings.HasPrefix(value, "'"):
		return s.say("Single quotes", "Strings stand in double quotes: %s = %q.", name, strings.Trim(value, "'"))
	case strings.HasSuffix(m[2], ";") || strings.HasSuffix(m[2], ","):
		return s.say("Something behind the value", "An argument ends with its line: write  %s = %s", name, value)
	case value == "":
		return s.say("Argument without a value", "%q has no value: write  %s = …", name, name)
	case unit.MatchString(value):
		return s.say("Value without quotes", "A value with a unit stands in quotes: %s = %q.", name, value)
	case grouped.MatchString(value):
		return s.say("Wrong number", "A number has digits only: %s = %s.", name, strings.ReplaceAll(value, "_", ""))
	case strings.HasPrefix(value, "=") || strings.ContainsAny(value, `"[{(=`) && !strings.HasPrefix(value, "${") && !strings.HasPrefix(value, "$("):
		return false
	}
	return s.say("Value without quotes", "A string stands in quotes: %s = %q.", name, value)
}

// wrongStart explains what can't begin an argument or a block.
func wrongStart(s *slip) bool {
	if s.diag.Summary != "Argument or block definition required" && s.diag.Summary != "Invalid block definition" &&
		s.diag.Summary != "Invalid argument name" || s.at >= len(s.tokens) {
		return false
	}
	word := regexp.MustCompile(`^[A-Za-z_][\w-]*`).FindString(s.line)
	rest := strings.TrimSpace(strings.TrimPrefix(s.line, word))
	following := strings.TrimSpace(string(s.src[min(len(s.src), s.diag.Subject.Start.Byte):]))
	switch {
	case s.diag.Summary == "Invalid argument name":
		name, value, _ := strings.Cut(s.line, "=")
		return s.say("Name in quotes", "The name of an argument stands without quotes: write  %s = %s", strings.Trim(name, `" `), strings.TrimSpace(value))
	case strings.HasPrefix(s.line, "}"):
		return s.say("One brace too many", "This } closes nothing.")
	case s.diag.Summary == "Invalid block definition" && strings.HasPrefix(following, "{"):
		return s.say("Brace on a line of its own", "The { of a block stands on the line of its name: write  %s {", s.line)
	case word == "":
		return false
	case rest == "":
		return s.say("Name alone", "%q alone says nothing. An argument is  %s = VALUE  and a block is  %s {", word, word, word)
	case strings.HasPrefix(rest, ":=") || strings.HasPrefix(rest, "=="):
		return s.say("Wrong sign", "An argument has one equals sign: write  %s = %s", word, strings.TrimSpace(rest[2:]))
	case strings.HasPrefix(rest, ":"):
		return s.say("Wrong sign", "An argument has an equals sign: write  %s = %s", word, strings.TrimSuffix(strings.TrimSpace(rest[1:]), ","))
	case strings.HasPrefix(rest, "."):
		return s.say("Name with a dot", "What belongs to %q stands in its block:\n\n  %s {\n    %s\n  }", word, word, strings.TrimSpace(rest[1:]))
	case s.diag.Summary == "Invalid block definition" && !strings.Contains(rest, "{"):
		return s.say("Neither argument nor block", "An argument is  %s = VALUE  and a block is  %s {", word, word)
	}
	return false
}

// oneArgument explains a second argument on a line.
func oneArgument(s *slip) bool {
	if s.diag.Summary != "Missing newline after argument" {
		return false
	}
	return s.say("Something behind the value", "An argument ends with its line. What comes next stands on a line of its own.")
}

// wordings are errors of the parser that need only other words.
var wordings = map[string][2]string{
	"Invalid escape sequence": {"Unknown escape", `A backslash in a string begins \n, \t, \" or \\. For the backslash itself write  \\`},
	"Invalid string literal": {"Label with ${}",
		"The label of a block is a plain text: nothing is filled in. A job's name can be given on the command line, with --name."},
	"Missing false expression in conditional": {"Condition without its second value", "It is written  CONDITION ? VALUE : OTHERWISE"},
	"Invalid expression":                      {"Missing value", "A value is expected here."},
	"Missing newline after block definition":  {"Something behind a block", "A block ends with its line. What comes next stands on a line of its own."},
}

func wording(s *slip) bool {
	w, ok := wordings[s.diag.Summary]
	return ok && s.say(w[0], "%s", w[1])
}
