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
	if reasons := why.GetReasons(); len(reasons) > 0 {
		nodes := "1 node"
		if n := reasons[0].GetCount(); n != 1 {
			nodes = fmt.Sprintf("%d nodes", n)
		}
		return fmt.Sprintf("%s (%s: %s)", text, reasons[0].GetKind(), nodes)
	}
	if note := why.GetNote(); note != "" {
		return text + "; " + note
	}
	if n := why.GetAheadCount(); n > 0 {
		return fmt.Sprintf("%s; %d ahead", strings.TrimSuffix(text, "."), n)
	}
	return text
}
