package wire

import (
	"fmt"
	"strings"
)

// First is the first thing to say of why a job waits, in one line with its numbers: what it needs and what there is, and the
// first reason of the nodes that don't do. "" when there is nothing to say.
func (why *WhyReply) First() string {
	text := why.GetHeadline()
	if text == "" {
		return why.GetNote()
	}
	for _, r := range why.GetReasons() {
		if r.GetCount() == 1 {
			return fmt.Sprintf("%s (%s: 1 node)", text, r.GetKind())
		}
		return fmt.Sprintf("%s (%s: %d nodes)", text, r.GetKind(), r.GetCount())
	}
	if note := why.GetNote(); note != "" {
		return text + "; " + note
	}
	if n := why.GetAheadCount(); n > 0 {
		return fmt.Sprintf("%s; %d ahead", strings.TrimSuffix(text, "."), n)
	}
	return text
}
