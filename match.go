package muster

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ModelMatches says whether model stands in a device's name as a whole word, or as whole words next to each other, case
// ignored: "H100" is in "NVIDIA H100 80GB HBM3", "L4" is not in "NVIDIA L40S".
func ModelMatches(name, model string) bool {
	name, model = strings.ToLower(name), strings.ToLower(model)
	if model == "" {
		return false
	}
	for from := 0; ; {
		i := strings.Index(name[from:], model)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(model)
		if (start == 0 || !isWordByte(name[start-1])) && (end == len(name) || !isWordByte(name[end])) {
			return true
		}
		from = start + 1
	}
}

// isWordByte takes every byte of a letter beyond ASCII as part of a word.
func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// FitsGPU says whether a GPU is one of the models asked for, and large enough: 95 % of MinMemory is, since a card's nominal
// size is never all of it. Its health and who holds it are not looked at.
func (r *Resources) FitsGPU(g *GPU) bool {
	if g.Memory < r.MinMemory/100*95 {
		return false
	}
	return len(r.Models) == 0 || slices.ContainsFunc(r.Models, func(m string) bool { return ModelMatches(g.Model, m) })
}

// Attribute gives the value of an attribute that a constraint can name, as text: cores as "16" or "0.5", memory in bytes,
// gpus without those that left the machine. ok is false where the node has no such label or no GPU; see Constraint.Check for
// the names.
func (n *Node) Attribute(name string) (value string, ok bool) {
	switch name {
	case "node.name":
		return n.Name, true
	case "node.cores":
		return n.MilliCores.String(), true
	case "node.memory":
		return strconv.FormatInt(int64(n.Memory), 10), true
	case "node.gpus":
		count := 0
		for i := range n.GPUs {
			if n.GPUs[i].Health != GPULost {
				count++
			}
		}
		return strconv.Itoa(count), true
	case "node.gpu_model":
		for i := range n.GPUs {
			if n.GPUs[i].Health != GPULost {
				return n.GPUs[i].Model, true
			}
		}
		return "", false
	case "node.fencing":
		return n.Fencing, true
	case "node.version":
		return n.Version, true
	case "node.address":
		return n.Address, true
	}
	if key, isLabel := strings.CutPrefix(name, "label."); isLabel {
		return n.Label(key)
	}
	return "", false
}

// NodeAttributes lists what follows "node." in a constraint's attribute.
var NodeAttributes = []string{"address", "cores", "fencing", "gpu_model", "gpus", "memory", "name", "version"}

// Operators lists the operators of constraints.
var Operators = []Operator{OpEqual, OpNotEqual, OpGreater, OpGreaterEqual, OpLess, OpLessEqual,
	OpIn, OpNotIn, OpMatches, OpVersion, OpExists}

// Check says what is wrong with a constraint: an attribute or operator that does not exist, a value that the operator cannot
// use. Holds is defined for those that pass; the others hold nowhere.
func (c *Constraint) Check() error {
	if err := checkAttribute(c.Attribute); err != nil {
		return err
	}
	if !slices.Contains(Operators, c.Operator) {
		return fmt.Errorf("operator %q does not exist: say one of = != > >= < <= in not_in matches version exists", c.Operator)
	}
	switch c.Operator {
	case OpExists:
		if c.Value != "" {
			return fmt.Errorf("operator \"exists\" takes no value")
		}
		return nil
	case OpMatches:
		if _, err := regexp.Compile(c.Value); err != nil {
			return fmt.Errorf("value %q is not a regular expression (RE2): %w", c.Value, err)
		}
	case OpVersion:
		if _, err := parseVersionRange(c.Value); err != nil {
			return err
		}
	case OpGreater, OpGreaterEqual, OpLess, OpLessEqual:
		if _, ok := quantity(c.Value); !ok {
			return fmt.Errorf("value %q is neither a number nor a size, which operator %q compares", c.Value, c.Operator)
		}
	case OpIn, OpNotIn:
		if slices.Contains(splitList(c.Value), "") {
			return fmt.Errorf("value %q has an empty element: say it as in \"eu-1,eu-2\"", c.Value)
		}
	}
	return nil
}

func checkAttribute(name string) error {
	if key, ok := strings.CutPrefix(name, "label."); ok && key != "" {
		return nil
	}
	if key, ok := strings.CutPrefix(name, "node."); ok && slices.Contains(NodeAttributes, key) {
		return nil
	}
	return fmt.Errorf("attribute %q does not exist: say label.KEY, or node. and one of %s", name, strings.Join(NodeAttributes, ", "))
}

// Holds says whether a node meets the constraint. A node without the attribute meets only != and not_in.
func (c *Constraint) Holds(n *Node) bool { return c.Matcher()(n) }

// Matcher is Holds prepared for many nodes: regular expressions and lists are read once.
func (c *Constraint) Matcher() func(*Node) bool {
	if c.Check() != nil {
		return func(*Node) bool { return false }
	}
	test, absent := c.tester()
	return func(n *Node) bool {
		value, ok := n.Attribute(c.Attribute)
		if !ok {
			return absent
		}
		return test(value)
	}
}

// tester gives the test of a value, and what holds where the attribute is absent. c has passed Check.
func (c *Constraint) tester() (test func(string) bool, absent bool) {
	switch c.Operator {
	case OpEqual:
		return func(v string) bool { return equalValues(v, c.Value) }, false
	case OpNotEqual:
		return func(v string) bool { return !equalValues(v, c.Value) }, true
	case OpIn, OpNotIn:
		list, not := splitList(c.Value), c.Operator == OpNotIn
		return func(v string) bool {
			return slices.ContainsFunc(list, func(e string) bool { return equalValues(v, e) }) != not
		}, not
	case OpMatches:
		re := regexp.MustCompile(c.Value)
		return re.MatchString, false
	case OpVersion:
		limits, _ := parseVersionRange(c.Value)
		return func(v string) bool { return limits.contain(v) }, false
	case OpExists:
		return func(string) bool { return true }, false
	default:
		want, _ := quantity(c.Value)
		return func(v string) bool {
			have, ok := quantity(v)
			return ok && ordered(c.Operator, compareQuantities(have, want))
		}, false
	}
}

// equalValues compares as text, or by amount where both are amounts: "64GiB" is 68719476736 and "16" is "16.0".
func equalValues(a, b string) bool {
	if a == b {
		return true
	}
	x, ok1 := quantity(a)
	y, ok2 := quantity(b)
	return ok1 && ok2 && compareQuantities(x, y) == 0
}

// An amount is what > and < compare.
type amount float64

// quantity reads a number or a size. Infinities and NaN are no amounts.
func quantity(s string) (amount, bool) {
	if b, err := ParseBytes(s); err == nil {
		return amount(b), true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f-f != 0 {
		return 0, false
	}
	return amount(f), true
}

func compareQuantities(a, b amount) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func ordered(op Operator, cmp int) bool {
	switch op {
	case OpEqual:
		return cmp == 0
	case OpNotEqual:
		return cmp != 0
	case OpGreater:
		return cmp > 0
	case OpGreaterEqual:
		return cmp >= 0
	case OpLess:
		return cmp < 0
	case OpLessEqual:
		return cmp <= 0
	}
	return false
}

func splitList(s string) []string {
	list := strings.Split(s, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// versionRange is a list of limits that must all hold.
type versionRange []versionLimit

type versionLimit struct {
	op      Operator
	version []uint64
}

// parseVersionRange reads ">= 1.2, < 2". A version without an operator means =.
func parseVersionRange(s string) (versionRange, error) {
	var out versionRange
	for _, part := range splitList(s) {
		op, rest := OpEqual, part
		for _, o := range []Operator{OpGreaterEqual, OpLessEqual, OpNotEqual, OpGreater, OpLess, OpEqual} {
			if after, ok := strings.CutPrefix(part, string(o)); ok {
				op, rest = o, strings.TrimSpace(after)
				break
			}
		}
		v, ok := parseVersion(rest)
		if !ok {
			return nil, fmt.Errorf("value %q is not a range of versions, as in \">= 1.2, < 2\"", s)
		}
		out = append(out, versionLimit{op, v})
	}
	return out, nil
}

func (r versionRange) contain(s string) bool {
	v, ok := parseVersion(s)
	if !ok {
		return false
	}
	for _, limit := range r {
		if !ordered(limit.op, compareVersions(v, limit.version)) {
			return false
		}
	}
	return true
}

// parseVersion reads dotted numbers, with or without a leading v. What follows a "-" or "+" is not compared.
func parseVersion(s string) ([]uint64, bool) {
	s = strings.TrimPrefix(s, "v")
	if i := strings.IndexAny(s, "-+"); i >= 0 {
		s = s[:i]
	}
	var out []uint64
	for _, part := range strings.Split(s, ".") {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

// compareVersions takes missing numbers as zero: 1.2 equals 1.2.0.
func compareVersions(a, b []uint64) int {
	for i := range max(len(a), len(b)) {
		var x, y uint64
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			if x < y {
				return -1
			}
			return 1
		}
	}
	return 0
}
