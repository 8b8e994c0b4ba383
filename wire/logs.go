package wire

import "fmt"

// Prefix is what stands before a line of one of several ranks: [rank@node], of a job with several groups [group/rank@node].
func (x *LogChunk) Prefix() string {
	if x.GetGroupName() != "" {
		return fmt.Sprintf("[%s/%d@%s] ", x.GetGroupName(), x.GetRank(), x.GetNode())
	}
	return fmt.Sprintf("[%d@%s] ", x.GetRank(), x.GetNode())
}
